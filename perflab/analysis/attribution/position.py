"""What part of a decoder a kernel computes, by where it stands between the attention kernels of a step.

Every layer of a decoder runs attention once, so the n-th attention is layer n, and what stands between two of them has
an order: output projection, norm, MLP or experts (with the activation inside), norm, QKV projection. Where a step does
not have that form, or its layers do not resemble each other, nothing is named: this is inference, and it says so.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from perflab.analysis.attribution.align import plain_name
from perflab.analysis.intervals import Ints, as_ints
from perflab.knowledge.modules import module_rules

FEWEST_LAYERS = 3
_ALIKE = 0.8
"""Share of layers whose order of parts must occur more than once (DeepSeek's first layers are dense, the rest not)."""
_WORK = ("gemm", "moe")
_BEFORE_FORWARD = ("copy", "set", "sample", "helper", "kv", "other", "embed")


@functools.lru_cache(maxsize=65536)
def token(name: str, category: str, kind: str = "kernel") -> str:
    """What a kernel is in the order of a layer, from its category and the words in its name."""
    words = module_rules().words
    if kind in ("memcpy", "memset"):
        return "set" if kind == "memset" else "copy"
    if category in ("norm_act", "quantize", "embedding"):
        if category == "norm_act" and words["rotary"].search(name):
            return "rotary"
        if words["embedding"].search(name):
            return "embed_norm" if words["norm"].search(name) else "embed"
        for word in ("norm", "act"):
            if words[word].search(name):
                return word
        return {"quantize": "set", "embedding": "gather"}.get(category, "point")
    if category == "attention":
        return "helper" if words["attention_helper"].search(plain_name(name)) else "attention"
    if category == "gemm" and words["gemm_part"].search(name):
        return "gemm_part"
    plain = {"communication": "comm", "kv_cache": "kv", "sampling": "sample", "memory": "copy"}
    return plain.get(category, category if category in _WORK else "other")


@dataclass(frozen=True)
class Places:
    """What was inferred of one sequence of kernels.

    Attributes
    ----------
    modules, layers
        One element a kernel; None and -1 where nothing was inferred.
    n_layers
        How many layers were found; 0 where there was no evidence.
    alike
        Share of layers whose order of parts occurs more than once.
    """

    modules: list[str | None]
    layers: Ints
    n_layers: int
    alike: float


def places(tokens: Sequence[str]) -> Places:
    """Infer parts and layers of one step's kernels on its main stream, in the order in which they ran.

    Parameters
    ----------
    tokens
        From `token`, one a kernel.
    """
    nothing = Places([None] * len(tokens), as_ints(np.full(len(tokens), -1)), 0, 0.0)
    chain = _longest_chain(tokens, attention_runs(tokens))
    if len(chain) < FEWEST_LAYERS:
        return nothing
    modules: list[str | None] = [None] * len(tokens)
    layers = np.full(len(tokens), -1, dtype=np.int64)
    for layer, (first, last) in enumerate(chain):
        _inside(tokens, range(first, last + 1), layer, modules, layers)
    for layer, (before, after) in enumerate(pairwise(chain)):
        _between(tokens, range(before[1] + 1, after[0]), layer, modules, layers)
    _head(tokens, range(chain[0][0]), modules, layers)
    _tail(tokens, range(chain[-1][1] + 1, len(tokens)), len(chain) - 1, modules, layers)
    alike = _alike(modules, layers, len(chain))
    if alike < _ALIKE:
        return Places(nothing.modules, nothing.layers, 0, alike)
    return Places(modules, as_ints(layers), len(chain), alike)


def repeating_block(codes: Sequence[int]) -> tuple[int, int, int]:
    """The longest stretch that is one block over and over: where it starts, the block's length, how often.

    Only whole repetitions count; the shortest block that covers most is taken. (0, 0, 0) where nothing repeats.
    """
    values = as_ints(codes)
    best = (0, 0, 0)
    for period in range(1, len(values) // FEWEST_LAYERS + 1):
        same = values[:-period] == values[period:]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False]))))
        for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            repeats = (end - start) // period + 1
            if repeats >= FEWEST_LAYERS and repeats * period > best[1] * best[2]:
                best = (start, period, repeats)
    return best


def attention_runs(tokens: Sequence[str]) -> list[tuple[int, int]]:
    """First and last position of every layer's attention: kernels that no matmul interrupts, and the KV cache write."""
    found: list[tuple[int, int]] = []
    worked = True
    for position, what in enumerate(tokens):
        if what == "attention":
            if worked or not found:
                found.append((position, position))
            else:
                found[-1] = (found[-1][0], position)
            worked = False
        elif what in _WORK:
            worked = True
    # The KV cache is written just before; that belongs to the layer's attention.
    return [(_back(tokens, first), last) for first, last in found]


def _back(tokens: Sequence[str], first: int) -> int:
    at = first
    while at > 0 and tokens[at - 1] in ("kv", "helper", "set"):
        at -= 1
    return at if "kv" in tokens[at:first] else first


def _longest_chain(tokens: Sequence[str], clusters: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of layers within one forward pass: a draft model's begins behind the sampler."""
    chains: list[list[tuple[int, int]]] = []
    for cluster in clusters:
        if chains and "sample" not in tokens[chains[-1][-1][1] : cluster[0]]:
            chains[-1].append(cluster)
        else:
            chains.append([cluster])
    return max(chains, key=len, default=[])


def _inside(tokens: Sequence[str], rows: range, layer: int, modules: list[str | None], layers: Ints) -> None:
    for row in rows:
        modules[row] = "self_attn.kv_cache" if tokens[row] == "kv" else "self_attn.attn"
        layers[row] = layer


def _segments(tokens: Sequence[str], rows: range) -> list[list[int]]:
    """The rows cut before every norm."""
    cut: list[list[int]] = [[]]
    for row in rows:
        if tokens[row] in ("norm", "embed_norm") and cut[-1]:
            cut.append([])
        cut[-1].append(row)
    return cut


def _mlp(tokens: Sequence[str], segments: list[list[int]]) -> int | None:
    """Which segment is the MLP or the experts: the one with an activation or experts, else the middle one of three."""
    told = [i for i, rows in enumerate(segments) if any(tokens[row] in ("act", "moe") for row in rows)]
    if len(told) == 1:
        return told[0]
    working = [i for i, rows in enumerate(segments) if any(tokens[row] in _WORK for row in rows)]
    return working[1] if not told and len(working) == 3 else None


def _between(tokens: Sequence[str], rows: range, layer: int, modules: list[str | None], layers: Ints) -> None:
    """From one layer's attention to the next one's."""
    segments = _segments(tokens, rows)
    middle = _mlp(tokens, segments)
    # Parallel blocks run the MLP beside attention, before any norm: then the parts cannot be told apart.
    if middle is None or middle == 0:
        return
    _after_attention(tokens, segments[: middle + 1], layer, modules, layers)
    _before_attention(tokens, segments[middle + 1 :], layer, modules, layers)


def _after_attention(
    tokens: Sequence[str], segments: list[list[int]], layer: int, modules: list[str | None], layers: Ints
) -> None:
    """Output projection, norms, MLP."""
    for segment in segments:
        layers[segment] = layer
    *out, mlp = segments
    norms = [segment[0] for segment in segments if tokens[segment[0]] == "norm"]
    _projections(tokens, [row for part in out for row in part], ("self_attn.o_proj",), "self_attn", modules)
    _mlp_parts(tokens, mlp, modules)
    for order, row in enumerate(norms):
        modules[row] = "post_attention_layernorm" if order == 0 else "pre_feedforward_layernorm"


def _before_attention(
    tokens: Sequence[str], segments: list[list[int]], layer: int, modules: list[str | None], layers: Ints
) -> None:
    """Norms that end the layer, then the next layer's norm, QKV projection, norms of Q and K, rotary embedding."""
    work = next((i for i, rows in enumerate(segments) if any(tokens[row] in _WORK for row in rows)), None)
    if work is None:
        return
    for i, segment in enumerate(segments):
        layers[segment] = layer + (i >= work)
    for segment in segments[:work]:
        for row in segment:
            modules[row] = "post_feedforward_layernorm" if tokens[row] == "norm" else "mlp.other"
    _input(tokens, segments[work:], modules)


def _input(tokens: Sequence[str], segments: list[list[int]], modules: list[str | None]) -> None:
    norm, rest = segments[0][0], [row for segment in segments for row in segment][1:]
    working = [row for row in rest if tokens[row] in _WORK]
    # Several segments with matmuls: low-rank queries (MLA), whose parts have other names.
    plain = not any(tokens[row] in _WORK for segment in segments[1:] for row in segment) and len(working) in (1, 3)
    _projections(tokens, rest, ("self_attn.qkv_proj",) * len(working) if plain else (), "self_attn", modules)
    for segment in segments[1:]:
        if tokens[segment[0]] == "norm":
            modules[segment[0]] = "self_attn.qk_norm"
    modules[norm] = "input_layernorm"


def _projections(
    tokens: Sequence[str], rows: list[int], names: tuple[str, ...], part: str, modules: list[str | None]
) -> None:
    """Name the matmuls in order, and what belongs to them: workspace clears and quantization before, split-K after."""
    other = f"{part}.other"
    working = [row for row in rows if tokens[row] in _WORK]
    named = dict(zip(working, names, strict=False)) if len(working) == len(names) else {}
    last = other
    for at, row in enumerate(rows):
        what = tokens[row]
        if what in _WORK:
            last = named.get(row, other)
            modules[row] = last
        elif what == "gemm_part":
            modules[row] = last
        elif what == "set":
            following = next((later for later in rows[at:] if tokens[later] != "set"), None)
            modules[row] = named.get(following, other) if following is not None else other
        elif what == "comm":
            modules[row] = f"{part}.communication"
        elif what == "rotary":
            modules[row] = "self_attn.rotary"
        else:
            modules[row] = other


def _mlp_parts(tokens: Sequence[str], rows: list[int], modules: list[str | None]) -> None:
    gemms = [row for row in rows if tokens[row] == "gemm"]
    experts = [row for row in rows if tokens[row] == "moe"]
    acts = [row for row in rows if tokens[row] == "act"]
    names: tuple[str, ...] = ()
    if experts:
        router = bool(gemms) and gemms[0] < experts[0]
        names = tuple(
            "mlp.experts" if tokens[row] == "moe" else "mlp.gate" if router and row == gemms[0] else "mlp.other"
            for row in rows
            if tokens[row] in _WORK
        )
    elif len(gemms) == 2 and (not acts or gemms[0] < acts[0] < gemms[1]):
        names = ("mlp.gate_up_proj", "mlp.down_proj")
    elif len(gemms) == 3 and (not acts or gemms[1] < acts[0] < gemms[2]):
        names = ("mlp.gate_up_proj", "mlp.gate_up_proj", "mlp.down_proj")
    _projections(tokens, rows, names, "mlp", modules)
    for row in acts:
        modules[row] = "mlp.act_fn"


def _head(tokens: Sequence[str], rows: range, modules: list[str | None], layers: Ints) -> None:
    """From the step's start to the first attention: inputs, embedding, first norm, QKV projection."""
    segments = _segments(tokens, rows)
    work = next((i for i, s in enumerate(segments) if any(tokens[row] in _WORK for row in s)), None)
    if work is None or tokens[segments[work][0]] not in ("norm", "embed_norm"):
        return
    norm = segments[work][0]
    _input(tokens, segments[work:], modules)
    for segment in segments[work:]:
        layers[segment] = 0
    before = range(norm)
    is_fused = tokens[norm] == "embed_norm"
    embed = None if is_fused else max((row for row in before if tokens[row] in ("embed", "gather")), default=None)
    if is_fused:
        # One kernel looks up the tokens and norms them: not a layer's work alone.
        modules[norm], layers[norm] = "embed_tokens + input_layernorm", -1
    for row in before:
        if embed is not None and row >= embed:
            modules[row] = "embed_tokens.communication" if tokens[row] == "comm" else "embed_tokens"
        elif tokens[row] in _BEFORE_FORWARD:
            modules[row] = "inputs"


def _tail(tokens: Sequence[str], rows: range, layer: int, modules: list[str | None], layers: Ints) -> None:
    """From the last attention to the step's end: rest of the layer, last norm, LM head, sampler."""
    sample = next((row for row in rows if tokens[row] == "sample"), rows.stop)
    segments = _segments(tokens, range(rows.start, sample))
    middle = _mlp(tokens, segments)
    if middle is None or middle == 0:
        return
    _after_attention(tokens, segments[: middle + 1], layer, modules, layers)
    rest = [row for segment in segments[middle + 1 :] for row in segment]
    norms = [row for row in rest if tokens[row] == "norm"]
    head = max((row for row in rest if tokens[row] == "gemm"), default=None)
    if not norms:
        return
    for row in rest:
        is_last = row == norms[-1]
        if tokens[row] == "norm":
            modules[row] = "norm" if is_last else "post_feedforward_layernorm"
            layers[row] = -1 if is_last else layer
        elif (head is not None and row <= head) or tokens[row] == "gemm_part":
            modules[row] = "lm_head"
        elif head is not None:
            modules[row] = "lm_head.communication" if tokens[row] == "comm" else "sampler"
    if head is not None:
        for row in range(sample, rows.stop):
            modules[row] = "sampler"


def _alike(modules: list[str | None], layers: Ints, n_layers: int) -> float:
    orders: list[tuple[str | None, ...]] = []
    for layer in range(1, n_layers - 1):
        parts = [modules[row] for row in np.flatnonzero(layers == layer).tolist()]
        orders.append(tuple(part for i, part in enumerate(parts) if i == 0 or part != parts[i - 1]))
    counts = Counter(orders)
    shared = sum(count for order, count in counts.items() if count > 1 or n_layers <= FEWEST_LAYERS)
    return shared / len(orders) if orders else 0.0
