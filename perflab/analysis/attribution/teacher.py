"""The third rung: a trace of the same model without CUDA graphs, whose steps run the same kernels in the same order.

The teacher's kernels were launched one by one, so their operators are known. A step of the measured trace is laid
beside the teacher's step most like it; a kernel inherits from the one it is paired with. Where too few can be paired,
or the two have another number of layers, the whole step inherits nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from perflab.analysis.attribution.align import align, plain_name
from perflab.analysis.attribution.position import attention_runs, token
from perflab.analysis.intervals import Ints, as_ints
from perflab.knowledge.thresholds import Thresholds, own_thresholds


@dataclass(frozen=True)
class Match:
    """How one step was matched.

    Attributes
    ----------
    teacher_step
        -1 where the teacher has no step of the phase.
    share
        Share of the longer of the two orders that was paired.
    accepted
        Whether the pairs are used.
    """

    step: int
    teacher_step: int
    share: float
    accepted: bool


def inherit(
    rows: pd.DataFrame,
    steps: pd.DataFrame,
    teacher_rows: pd.DataFrame,
    teacher_steps: pd.DataFrame,
    thresholds: Thresholds | None = None,
) -> tuple[Ints, Ints, list[Match]]:
    """For each activity, the row of `teacher_rows` it is paired with.

    Parameters
    ----------
    rows, teacher_rows
        Device work of one rank in order of start; need `name`, `category`, `kind`, `stream`, `step`, `dur_ns`.
    steps, teacher_steps
        Tables `steps` of the same ranks.

    Returns
    -------
    positions, shares, matches
        Position in `teacher_rows`, -1 where there is none; the share paired in the step, in thousandths; and what
        became of each step.
    """
    least = (thresholds or own_thresholds()).limit("teacher_match", "least")
    positions = np.full(len(rows), -1, dtype=np.int64)
    shares = np.zeros(len(rows), dtype=np.int64)
    codes: dict[tuple[str, str], int] = {}
    mine, theirs = _codes(rows, codes), _codes(teacher_rows, codes)
    categories = {category: i for i, category in enumerate(sorted({category for _, category in codes}))}
    groups = as_ints([categories[category] for _, category in codes])
    tokens, their_tokens = tokens_of(rows), tokens_of(teacher_rows)
    on_main, on_their_main = main_stream(rows), main_stream(teacher_rows)
    known: dict[tuple[bytes, int], Ints] = {}
    matches: list[Match] = []
    for step in steps.itertuples():
        at = np.flatnonzero(on_main & (rows["step"].to_numpy() == step.step))
        like = _like(step, teacher_steps)
        there = np.flatnonzero(on_their_main & (teacher_rows["step"].to_numpy() == like)) if like >= 0 else at[:0]
        if not len(at) or not len(there):
            matches.append(Match(int(step.step), like, 0.0, False))
            continue
        key = (mine[at].tobytes(), like)
        if key not in known:
            known[key] = align(mine[at].tolist(), theirs[there].tolist(), groups)
        pairs = known[key]
        share = float((pairs >= 0).sum()) / max(len(at), len(there))
        layers_agree = _layers(tokens, at) == _layers(their_tokens, there)
        accepted = layers_agree and share >= least
        matches.append(Match(int(step.step), like, share, accepted))
        if accepted:
            paired = pairs >= 0
            positions[at[paired]] = there[pairs[paired]]
            shares[at] = round(share * 1000)
    return as_ints(positions), as_ints(shares), matches


def tokens_of(rows: pd.DataFrame) -> list[str]:
    """From `perflab.analysis.attribution.position.token`, one a row."""
    parts = (rows["name"].astype(str), rows["category"].astype(str), rows["kind"].astype(str))
    return [token(name, category, kind) for name, category, kind in zip(*parts, strict=True)]


def _layers(tokens: list[str], at: Ints) -> int:
    return len(attention_runs([tokens[row] for row in at]))


def _codes(rows: pd.DataFrame, codes: dict[tuple[str, str], int]) -> Ints:
    names, categories = rows["name"].astype("category"), rows["category"].astype("category")
    plain = [plain_name(str(name)) for name in names.cat.categories]
    pairs = zip(names.cat.codes.tolist(), categories.astype(str).tolist(), strict=True)
    return as_ints([codes.setdefault((plain[code], category), len(codes)) for code, category in pairs])


def main_stream(rows: pd.DataFrame) -> np.ndarray:
    """Which activities are on the stream that works most."""
    busiest = rows.groupby(["device", "stream"])["dur_ns"].sum().idxmax() if len(rows) else (-1, -1)
    found: np.ndarray = ((rows["device"] == busiest[0]) & (rows["stream"] == busiest[1])).to_numpy(bool)
    return found


def _like(step: object, steps: pd.DataFrame) -> int:
    """The teacher's step of the same phase whose tokens are nearest; the later of two, which is warmer."""
    same = steps[steps["phase"].astype(str) == str(step.phase)]  # type: ignore[attr-defined]
    if same.empty:
        return -1
    tokens = (same["prefill_tokens"] + same["decode_tokens"]).astype("float64").fillna(0).to_numpy()
    mine = step.prefill_tokens + step.decode_tokens  # type: ignore[attr-defined]
    distance = np.abs(tokens - (0.0 if pd.isna(mine) else float(mine)))
    return int(same["step"].iloc[int(np.flatnonzero(distance == distance.min())[-1])])
