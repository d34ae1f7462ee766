"""Which operator, layer and part of the model every kernel belongs to, and how that is known.

The ladder, from what is certain to what is inferred: `launch` (the operator it was launched from), `capture` (the
operator recorded when its graph was captured), `teacher` (the kernel of a trace without graphs in the same place),
`position` (the order of kernels in the step), `name` (the category alone), `none`. A kernel stands on the first rung
that reaches it; the part and layer can come from a later one (`module_from`), since a compiled model's operators name
none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from perflab.analysis.attribution.capture import Capture, replayed_from
from perflab.analysis.attribution.host import HostSide, launched
from perflab.analysis.attribution.modules import norm_instance, part_of
from perflab.analysis.attribution.position import places, repeating_block
from perflab.analysis.attribution.teacher import Match, inherit, main_stream, tokens_of
from perflab.analysis.breakdown import exclusive_pieces
from perflab.analysis.intervals import Ints, as_ints
from perflab.analysis.steps import step_of
from perflab.knowledge.thresholds import Thresholds, own_thresholds

RUNGS = ("launch", "capture", "teacher", "position", "name", "none")
_TEXTS = ("operator", "module", "module_from")
_FULL_BLOCK = 0.5
"""Least share of a step's kernels that a repeating block must cover to count as its layers."""
_FEWEST_KERNELS, _FEWEST_BLOCKS = 3, 6
"""Fewest different kernels of such a block, and fewest repetitions: loops of one kernel or a few are no layers."""


@dataclass(frozen=True)
class Attribution:
    """What is known of the kernels of one rank.

    Attributes
    ----------
    rank
        Its number.
    rows
        Table `attribution`, one row an activity of the device, in the order of `kernels` as given; `device`, `stream`,
        `name`, `kind`, `category`, `start_ns`, `dur_ns`, and `replayed` (by a graph) besides.
    pieces
        One row a stretch of time that an activity has to itself: `row` (position in `rows`), `step`, `phase`,
        `exclusive_ns`. Their sum is the breakdown's busy time.
    n_layers
        Layers found; 0 where there was no evidence.
    alike
        Share of layers whose order of parts occurs more than once; None where layers were not inferred from order.
    matches
        How the steps were matched with the teacher's.
    thresholds
        The figures that were asked of a match, and that an outlier must exceed.
    """

    rank: int
    rows: pd.DataFrame
    steps: pd.DataFrame
    pieces: pd.DataFrame
    n_layers: int
    alike: float | None = None
    matches: Sequence[Match] = field(default=())
    thresholds: Thresholds = field(default_factory=own_thresholds)


def attribute(
    kernels: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    host: HostSide | None = None,
    captured: Sequence[Capture] = (),
    teacher: Attribution | None = None,
    layers: int | None = None,
    thresholds: Thresholds | None = None,
) -> Attribution:
    """Attribute the device work of one rank.

    Parameters
    ----------
    kernels
        Table `kernels` with categories.
    steps
        Table `steps` of the rank.
    host
        The host's side of the same trace. Without it the first rung is missing.
    captured
        From `perflab.analysis.attribution.capture.captures`.
    teacher
        What was found of the teacher's trace of the same rank.
    layers
        Layers of the model on this rank, where its config tells. An order of kernels that shows another number is not
        read: then it is not the order this module knows.
    thresholds
        How well captures and teacher must match, and what makes an outlier; perflab's own unless given.
    """
    work = kernels[kernels["kind"] != "cpu_op"].reset_index(drop=True)
    rank = int(work["rank"].iloc[0]) if len(work) else 0
    own = steps[steps["rank"] == rank].sort_values("start_ns", ignore_index=True)
    at = step_of(work["start_ns"].to_numpy(np.int64), own)
    number = np.append(own["step"].to_numpy(np.int64), -1)[at]
    phase = np.append(own["phase"].astype("object").to_numpy(), "all" if own.empty else "outside")[at]
    rows = work[["rank", "device", "stream", "name", "kind", "category", "start_ns", "dur_ns"]].assign(
        step=number, phase=phase, rung="none", operator=None, shapes="", module=None, module_from=None,
        layer=pd.array([pd.NA] * len(work), dtype="Int64"), confidence=np.nan, replayed=work["graph_id"] >= 0,
    )  # fmt: skip
    rows = _launched(rows, work, host)
    rows = _captured(rows, work.assign(step=number), captured, thresholds)
    rows, matches = _taught(rows, own, teacher, thresholds)
    graphs = work["graph_id"].to_numpy(np.int64)
    rows, n_layers, alike = _placed(rows, as_ints(np.where(graphs >= 0, work["correlation_id"], -1)), layers)
    rows = _rungs(rows)
    texts = {c: pd.Series([None if pd.isna(v) else v for v in rows[c]], dtype=object) for c in _TEXTS}
    rows = rows.assign(**texts)
    pieces = exclusive_pieces(work, own)
    own_ns = np.zeros(len(rows), dtype=np.int64)
    np.add.at(own_ns, pieces["row"].to_numpy(), pieces["exclusive_ns"].to_numpy())
    limits = thresholds or own_thresholds()
    return Attribution(rank, rows.assign(exclusive_ns=own_ns), own, pieces, n_layers, alike, matches, limits)


def _launched(rows: pd.DataFrame, work: pd.DataFrame, host: HostSide | None) -> pd.DataFrame:
    if host is None:
        return rows
    found = launched(work, host)
    told = [part_of(stack) for stack in found["stack"]]
    reached = found["operator"].notna().to_numpy() | np.array([module is not None for module, _ in told], dtype=bool)
    return _fill(rows, reached, "launch", found, told, np.ones(len(rows)))


def _captured(
    rows: pd.DataFrame, work: pd.DataFrame, captured: Sequence[Capture], thresholds: Thresholds | None
) -> pd.DataFrame:
    if not captured:
        return rows
    found = replayed_from(work, captured, thresholds)
    told = [part_of(stack) for stack in found["stack"]]
    reached = found["matched"].to_numpy(bool)
    return _fill(rows, reached, "capture", found, told, found["agree"].to_numpy())


def _fill(
    rows: pd.DataFrame,
    reached: np.ndarray,
    rung: str,
    found: pd.DataFrame,
    told: list[tuple[str | None, int | None]],
    confidence: np.ndarray,
) -> pd.DataFrame:
    """Put operators, and the parts and layers their stacks tell, on rows that no rung reached before."""
    new = reached & (rows["rung"].to_numpy() == "none")
    modules = np.array([module for module, _ in told] + [None], dtype=object)[:-1]
    layers = pd.array([layer for _, layer in told], dtype="Int64")
    modules = _norms(modules, layers, found["stack"].tolist(), rows)
    known = new & pd.notna(modules)
    return rows.assign(
        rung=np.where(new, rung, rows["rung"]),
        operator=np.where(new, found["operator"], rows["operator"]),
        shapes=np.where(new, found["shapes"], rows["shapes"]),
        module=np.where(known, modules, rows["module"]),
        module_from=np.where(known, "stack", rows["module_from"]),
        layer=rows["layer"].where(~pd.Series(new & ~layers.isna(), index=rows.index), pd.Series(layers, rows.index)),
        confidence=np.where(new, confidence, rows["confidence"]),
    )


def _norms(modules: np.ndarray, layers: object, stacks: list[tuple[str, ...]], rows: pd.DataFrame) -> np.ndarray:
    """Which norm of a layer each is, by the order in which they come; what writes the KV cache; what communicates."""
    out = modules.copy()
    order: dict[tuple[object, object], list[str]] = {}
    numbers = list(layers)  # type: ignore[call-overload]
    for position in np.flatnonzero(modules == "layernorm"):
        key = (rows["step"].iat[position], numbers[position])
        seen, mine = order.setdefault(key, []), norm_instance(stacks[position])
        if mine not in seen:
            seen.append(mine)
        names = ("input_layernorm", "post_attention_layernorm")
        out[position] = names[seen.index(mine)] if seen.index(mine) < len(names) else "layernorm"
    categories = rows["category"].astype(str).to_numpy()
    out[(categories == "kv_cache") & (modules == "self_attn.attn")] = "self_attn.kv_cache"
    for position in np.flatnonzero((categories == "communication") & pd.notna(modules)):
        # A row-parallel product and its all-reduce are one module, but not one kind of work.
        out[position] = f"{str(modules[position]).split('.')[0]}.communication"
    return out


def _taught(
    rows: pd.DataFrame, steps: pd.DataFrame, teacher: Attribution | None, thresholds: Thresholds | None
) -> tuple[pd.DataFrame, tuple[Match, ...]]:
    """What the teacher's kernel in the same place is; its operator only where no rung told one before."""
    if teacher is None or not len(rows) or not len(teacher.rows):
        return rows, ()
    positions, shares, matches = inherit(rows, steps, teacher.rows, teacher.steps, thresholds)
    paired = positions >= 0
    known = teacher.rows.iloc[np.where(paired, positions, 0)].reset_index(drop=True)
    reached = paired & (known["rung"] == "launch").to_numpy() & (rows["rung"] == "none").to_numpy()
    placed = paired & known["module"].notna().to_numpy() & rows["module"].isna().to_numpy()
    layered = paired & known["layer"].notna().to_numpy() & rows["layer"].isna().to_numpy()
    return rows.assign(
        rung=np.where(reached, "teacher", rows["rung"]),
        operator=np.where(reached, known["operator"], rows["operator"]),
        shapes=np.where(reached, known["shapes"], rows["shapes"]),
        module=np.where(placed, known["module"], rows["module"]),
        module_from=np.where(placed, "teacher", rows["module_from"]),
        layer=rows["layer"].where(~pd.Series(layered, rows.index), pd.Series(known["layer"].array, rows.index)),
        confidence=np.where(reached, shares / 1000, rows["confidence"]),
    ), tuple(matches)


def _placed(rows: pd.DataFrame, graphs: Ints, expected: int | None) -> tuple[pd.DataFrame, int, float | None]:
    """Parts and layers by place, where nothing else told them; and how many layers there are."""
    modules, layers = np.full(len(rows), None, dtype=object), np.full(len(rows), -1, dtype=np.int64)
    tokens = tokens_of(rows)
    counts: Counter[int] = Counter()
    shares: list[float] = []
    found: list[tuple[Ints, list[str | None], Ints]] = []
    for at in _passes(rows, graphs):
        here = places([tokens[row] for row in at])
        numbered, n = here.layers, here.n_layers
        if n:
            shares.append(here.alike)
        elif (graphs[at] >= 0).any() and "attention" not in {tokens[row] for row in at}:
            numbered, n = _block_layers(rows, at)
        if n:
            counts[n] += 1
            found.append((at, here.modules, numbered))
    usual = counts.most_common(1)[0][0] if counts else 0
    if expected is not None and usual != expected:
        usual, found, shares = 0, [], []
    for at, named, numbered in found:
        # A step with another number of layers is not one of this model, or was cut: its numbers would mislead.
        if int(numbered.max(initial=-1)) + 1 == usual:
            modules[at], layers[at] = named, numbered
    told = pd.notna(modules) & rows["module"].isna().to_numpy()
    also = (layers >= 0) & rows["layer"].isna().to_numpy() & (rows["module_from"].isna().to_numpy() | told)
    by_place = pd.Series(pd.array(layers, dtype="Int64"), rows.index)
    known = rows["layer"].dropna()
    placed = rows.assign(
        module=np.where(told, modules, rows["module"]),
        module_from=np.where(told, "position", rows["module_from"]),
        layer=rows["layer"].where(~pd.Series(also, rows.index), by_place),
    )
    return placed, int(known.max()) + 1 if len(known) else usual, min(shares) if shares else None


def _passes(rows: pd.DataFrame, graphs: Ints) -> list[Ints]:
    """Rows that are one forward pass each: the main stream of every step; without steps, every replay of a graph."""
    step = rows["step"].to_numpy(np.int64)
    by = step if (step >= 0).any() else graphs
    main = main_stream(rows) & (by >= 0)
    return [as_ints(np.flatnonzero(main & (by == number))) for number in np.unique(by[main])]


def _block_layers(rows: pd.DataFrame, at: Ints) -> tuple[Ints, int]:
    """Layers as repetitions of a block of kernels, where no attention kernel is known; nothing more is named."""
    names = pd.factorize(rows["name"].astype(str).to_numpy()[at])[0]
    start, period, repeats = repeating_block(names.tolist())
    layers = np.full(len(at), -1, dtype=np.int64)
    block = set(names[start : start + period].tolist())
    is_short = repeats < _FEWEST_BLOCKS or len(block) < _FEWEST_KERNELS
    if is_short or period * repeats < _FULL_BLOCK * len(at):
        return as_ints(layers), 0
    layers[start : start + period * repeats] = np.repeat(np.arange(repeats), period)
    return as_ints(layers), repeats


def _rungs(rows: pd.DataFrame) -> pd.DataFrame:
    """The rung of what has no operator."""
    open_ = (rows["rung"] == "none").to_numpy()
    inferred = open_ & (rows["module"].notna() | rows["layer"].notna()).to_numpy()
    named = open_ & ~inferred & (rows["category"].astype(str) != "other").to_numpy()
    return rows.assign(rung=np.where(inferred, "position", np.where(named, "name", rows["rung"])))
