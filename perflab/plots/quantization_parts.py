"""What quantized variants are made of: memory by component, predicted beside measured, and a step by category."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from perflab import units
from perflab.analysis.quantization.tradeoffs import BASELINE, Comparison, Kv, Memory, Variant
from perflab.plots import bars, style

_WORDS = {**style.WORDS, "non_torch": "graphs, activations, other"}
_SHOWN = ("weights", "kv_cache", "non_torch", "free")


@style.styled
def plot_variant_memory(comparison: Comparison, *, kv: Kv | None = None, ax: Axes | None = None) -> Axes:
    """A bar a variant: weights, KV cache and the rest, up to the GPU's memory where its size is known.

    Right of it how many tokens the cache holds, and how many requests of full length that is.
    """
    whole, ax = ax is None, style.axes(ax)
    found = [(one, memory) for one in comparison.variants if (memory := one.memory_of(kv)) is not None]
    found = [(one, memory) for one, memory in found if memory.weights_bytes or memory.kv_bytes]
    if not found:
        return style.nothing(ax, "Memory of the variants is not known", "No log tells of it.", whole=whole)
    places = bars.rows([("", one.label) for one, _ in found], titled=False)
    bars.frame(ax, places, [one.label for one, _ in found], whole=whole, titled=False)
    parts = {places["", one.label]: _memory_parts(memory) for one, memory in found}
    longest = max(sum(part.length for part in row) for row in parts.values())
    gpu = next((memory.gpu_bytes for _, memory in found if memory.gpu_bytes), None)
    ax.set_xlim(0, max(longest, units.gib(gpu) if gpu else 0.0))
    ax.set_xlabel("memory of one GPU (GiB)")
    style.head(ax, memory_title(found), _about_memory(comparison, found, gpu), whole=whole)
    for one, memory in found:
        told = _beside(memory)
        ax.annotate(
            told, (1, places["", one.label]), xycoords=("axes fraction", "data"), xytext=(10, 0),
            textcoords="offset points", va="center_baseline", fontsize=9, color=style.MUTED, annotation_clip=False,
        )  # fmt: skip
    # After what stands beside the bars, which takes from the width that labels inside have.
    named = bars.stack(
        ax, parts, style.COMPONENT_COLOURS, strong=dict.fromkeys(parts, "weights"), words=_WORDS, floor=longest * 0.004
    )
    seen = {part.name for row in parts.values() for part in row}
    style.key(
        ax, [name for name in _SHOWN if name in seen - named], style.COMPONENT_COLOURS, strong="weights", words=_WORDS,
        whole=whole,
    )  # fmt: skip
    return ax


def _memory_parts(one: Memory) -> list[bars.Segment]:
    sizes = {"weights": one.weights_bytes, "kv_cache": one.kv_bytes, "non_torch": one.other_bytes}
    known = {name: size for name, size in sizes.items() if size}
    if one.gpu_bytes and one.kv_bytes and one.weights_bytes:
        rest = one.gpu_bytes - sum(known.values())
        if rest > 0:
            known["free"] = rest
    return [bars.Segment(name, units.gib(size), units.show_bytes(size)) for name, size in known.items()]


def _beside(one: Memory) -> str:
    weights = "" if one.weights_bytes is None else f"weights {units.show_bytes(one.weights_bytes)}"
    tokens = "" if one.kv_tokens is None else f"{units.show_count(one.kv_tokens)} tokens"
    most = "" if one.max_concurrency is None else f"{one.max_concurrency:,.0f} x full length"
    return ", ".join(part for part in (weights, tokens, most) if part)


def memory_title(found: list[tuple[Variant, Memory]]) -> str:
    """How much smaller the smallest weights are than the baseline's, and what becomes of the cache."""
    by_name = {one.name: memory for one, memory in found}
    base = by_name.get(BASELINE)
    known = [(one, memory) for one, memory in found if memory.weights_bytes]
    if base is None or not base.weights_bytes or len(known) < 2:
        return f"Weights take {style.join([units.show_bytes(m.weights_bytes or 0) for _, m in known])}"
    least, memory = min(known, key=lambda pair: pair[1].weights_bytes or 0)
    weights = memory.weights_bytes or 1
    text = (
        f"{least.label} holds the weights in {units.show_bytes(weights)}, {base.weights_bytes / weights:.2f} times less"
    )
    # A cache of a fixed size tells nothing of weights.
    if base.kv_tokens and memory.kv_tokens and memory.kv_tokens != base.kv_tokens:
        more = memory.kv_tokens / base.kv_tokens - 1
        text += f"; its KV cache holds {abs(more) * 100:.0f} % {'more' if more >= 0 else 'fewer'} tokens"
    return text


def _about_memory(comparison: Comparison, found: list[tuple[Variant, Memory]], gpu: int | None) -> str:
    modes = sorted({memory.kv for _, memory in found})
    cache = " and ".join(f"KV cache {mode}" for mode in modes)
    size = f"; the GPU has {units.show_bytes(gpu)}" if gpu else "; how large the GPU's memory is, is not told"
    return f"{comparison.place.label}; as vLLM's log gives them, {cache}{size}"


@style.styled
def plot_predicted_memory(comparison: Comparison, *, kv: Kv | None = None, ax: Axes | None = None) -> Axes:
    """Weights by variant: predicted from config and format (hollow), as loaded (full), and by how much they differ."""
    whole, ax = ax is None, style.axes(ax)
    found = [
        (one, memory)
        for one in comparison.variants
        if (memory := one.memory_of(kv)) is not None and memory.weights_bytes and memory.predicted_weights_bytes
    ]
    if not found:
        return style.nothing(ax, "No prediction to hold against", "Config or log is missing.", whole=whole)
    places = bars.rows([("", one.label) for one, _ in found], titled=False)
    bars.frame(ax, places, [one.label for one, _ in found], whole=whole, titled=False)
    for one, memory in found:
        at = places["", one.label]
        measured, predicted = (units.gib(size or 0) for size in (memory.weights_bytes, memory.predicted_weights_bytes))
        ax.plot([predicted, measured], [at, at], color=style.LINE, linewidth=1.4, zorder=1)
        colour = style.COMPONENT_COLOURS["weights"]
        ax.plot(predicted, at, "o", markersize=11, markerfacecolor="none", color=colour, markeredgewidth=1.6, zorder=2)
        ax.plot(measured, at, "o", markersize=5.5, color=colour, zorder=3)
        off = measured / predicted - 1
        text = f"{predicted:.2f} → {measured:.2f} GiB"
        tokens = ""
        if memory.kv_tokens and memory.predicted_kv_tokens:
            tokens = f"; KV tokens {_percent(memory.kv_tokens / memory.predicted_kv_tokens - 1)}"
        ax.annotate(
            f"{_percent(off)}  {text}{tokens}", (1, at), xycoords=("axes fraction", "data"),
            xytext=(10, 0), textcoords="offset points", va="center_baseline", fontsize=9, color=style.MUTED,
            annotation_clip=False,
        )  # fmt: skip
    most = max(units.gib(max(m.weights_bytes or 0, m.predicted_weights_bytes or 0)) for _, m in found)
    ax.set_xlim(0, most * 1.08)
    ax.set_xlabel("weights of one GPU (GiB)")
    offs = [abs((m.weights_bytes or 1) / (m.predicted_weights_bytes or 1) - 1) for _, m in found]
    worst = max(range(len(offs)), key=lambda i: offs[i])
    title = (
        f"Weights are predicted within {offs[worst] * 100:.1f} % of what vLLM loads (widest: {found[worst][0].label})"
    )
    about = f"{comparison.place.label}; ring: from the config and the format's bits; dot: vLLM's log"
    return style.head(ax, title, about, whole=whole)


def _percent(share: float) -> str:
    """`+2.0 %`; what rounds to nothing has no sign."""
    text = f"{share * 100:+.1f} %".replace("-", "−")
    return "0.0 %" if text[1:] == "0.0 %" else text


@style.styled
def plot_variant_steps(comparison: Comparison, *, phase: str = "decode", ax: Axes | None = None) -> Axes:
    """A bar a variant: the time of a step of one phase by category, each of the same batch as the baseline's."""
    whole, ax = ax is None, style.axes(ax)
    rows = step_rows(comparison, phase)
    if not rows:
        why = "It needs profiling passes of the baseline and of a variant."
        return style.nothing(ax, f"What changed inside a {phase} step is not known", why, whole=whole)
    places = bars.rows([("", label) for label in rows], titled=False)
    bars.frame(ax, places, list(rows), whole=whole, titled=False)
    longest = max(sum(parts.values()) for parts in rows.values())
    size, unit = bars.scale(longest)
    ax.set_xlim(0, longest / size)
    ax.set_xlabel(f"time of a {phase} step ({unit})")
    about = f"{comparison.place.label}; from profiling passes, which slow the host: idle time is longer than in service"
    style.head(ax, steps_title(rows, phase, comparison), about, whole=whole)
    parts = {
        places["", label]: [
            bars.Segment(name, ns / size, units.show_time(ns)) for name, ns in by_part.items() if ns > 0
        ]
        for label, by_part in rows.items()
    }
    for label, name in _main_matmuls(comparison, phase).items():
        if label in rows:
            ax.annotate(
                name, (1, places["", label]), xycoords=("axes fraction", "data"), xytext=(10, 0),
                textcoords="offset points", va="center_baseline", fontsize=9, color=style.MUTED, annotation_clip=False,
            )  # fmt: skip
    # After what stands beside the bars, which takes from the width that labels inside have.
    named = bars.stack(
        ax, parts, style.CATEGORY_COLOURS, strong=dict.fromkeys(parts, "gemm"), floor=longest / size * 0.004
    )
    seen = {part.name for row in parts.values() for part in row}
    style.key(
        ax, [name for name in style.CATEGORY_COLOURS if name in seen - named], style.CATEGORY_COLOURS, strong="gemm",
        whole=whole,
    )  # fmt: skip
    return ax


def step_rows(comparison: Comparison, phase: str) -> dict[str, dict[str, int]]:
    """Label -> category -> nanoseconds a step, the baseline first; empty without passes to compare."""
    rows: dict[str, dict[str, int]] = {}
    base = comparison.baseline
    for variant in comparison.variants:
        parts = [one for one in variant.reasons.categories if one.phase == phase] if variant.reasons else []
        if not parts or base is None:
            continue
        # All variants were profiled under one load; where batches differ in parts, the first pair's baseline is shown.
        rows.setdefault(base.label, {one.part: one.baseline_ns for one in parts})
        rows[variant.label] = {one.part: one.variant_ns for one in parts}
    order = list(style.CATEGORY_COLOURS)
    return {label: dict(sorted(parts.items(), key=lambda item: order.index(item[0]))) for label, parts in rows.items()}


def steps_title(rows: Mapping[str, Mapping[str, int]], phase: str, comparison: Comparison) -> str:
    """The variant whose matmuls got fastest, and what its whole step came to."""
    base = comparison.baseline
    first = rows[base.label] if base else {}
    others = [label for label in rows if base is None or label != base.label]
    least = min(others, key=lambda label: rows[label].get("gemm", 0))
    before, after = first.get("gemm", 0), rows[least].get("gemm", 0)
    whole = sum(rows[least].values()) / max(sum(first.values()), 1) - 1
    share = f"{(after / before - 1) * 100:+.0f} %" if before else "?"
    return f"{least}: GEMM {share}, the whole {phase} step {whole * 100:+.0f} %".replace("-", "−")


def _main_matmuls(comparison: Comparison, phase: str) -> dict[str, str]:
    """Label -> the family that does most of its matmuls in a phase."""
    found: dict[str, str] = {}
    base = comparison.baseline
    for variant in comparison.variants:
        parts = [one for one in variant.reasons.matmuls if one.phase == phase] if variant.reasons else []
        if not parts:
            continue
        found[variant.label] = max(parts, key=lambda one: one.variant_ns).part
        if base is not None:
            found.setdefault(base.label, max(parts, key=lambda one: one.baseline_ns).part)
    return found
