"""What an attribution adds up to: by rung, by part of the model, by layer. Every sum is the breakdown's busy time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perflab.analysis.attribution.ladder import RUNGS, Attribution
from perflab.schema import PHASES

_SPREAD = 4 * 1.4826
"""Four standard deviations, as the median absolute deviation of a normal distribution tells them."""


def rung_table(of: Attribution) -> pd.DataFrame:
    """How much each rung reached.

    Returns
    -------
    DataFrame
        One row a rung, in order: `rung`, `kernels` (activities in steps), `exclusive_ns`, `share` (of busy time; NaN
        where there is none), `kernel_share`.
    """
    rows = of.rows[of.rows["phase"] != "outside"]
    counts = rows.groupby("rung").size()
    sums = of.rows.groupby("rung")["exclusive_ns"].sum()
    table = pd.DataFrame(
        {
            "rung": list(RUNGS),
            "kernels": [int(counts.get(rung, 0)) for rung in RUNGS],
            "exclusive_ns": [int(sums.get(rung, 0)) for rung in RUNGS],
        }
    )
    busy, number = table["exclusive_ns"].sum(), table["kernels"].sum()
    return table.assign(
        share=table["exclusive_ns"] / busy if busy else np.nan,
        kernel_share=table["kernels"] / number if number else np.nan,
    )


def module_table(of: Attribution) -> pd.DataFrame:
    """Time by part of the model and phase.

    Returns
    -------
    DataFrame
        `phase`, `module` (None: not known), `source` (stack, teacher, position; the one with most time), `kernels`,
        `exclusive_ns`, `steps` of the phase, `step_ns` (mean of a step), `share` of the phase's busy time. Largest
        first within a phase. The sum over a phase is its busy time.
    """
    pieces = _pieces(of, ["module", "module_from"])
    steps = _steps(of)
    rows = []
    for (phase, module), some in pieces.groupby(["phase", "module"], dropna=False, sort=False):
        by_source = some.dropna(subset="module_from").groupby("module_from")["exclusive_ns"].sum()
        total = int(some["exclusive_ns"].sum())
        rows.append(
            {
                "phase": phase,
                "module": None if pd.isna(module) else module,
                "source": str(by_source.idxmax()) if len(by_source) else None,
                "kernels": int(some["row"].nunique()),
                "exclusive_ns": total,
                "steps": steps.get(phase, 1),
                "step_ns": total / steps.get(phase, 1),
            }
        )
    columns = ["phase", "module", "source", "kernels", "exclusive_ns", "steps", "step_ns"]
    table = pd.DataFrame(rows, columns=columns)
    busy = table.groupby("phase")["exclusive_ns"].transform("sum")
    table = table.assign(share=table["exclusive_ns"] / busy.where(busy > 0))
    order = table["phase"].map({phase: i for i, phase in enumerate((*PHASES, "all"))})
    by_size = table.assign(order=order).sort_values(["order", "exclusive_ns"], ascending=[True, False])
    return by_size.drop(columns="order").reset_index(drop=True)


def layer_table(of: Attribution) -> pd.DataFrame:
    """Time by layer and phase, and which layers stand out.

    Layers are compared with those of the same parts only: a dense layer is no outlier among layers of experts.

    Returns
    -------
    DataFrame
        `phase`, `layer` (NA: outside layers, or not known), `kernels`, `exclusive_ns`, `steps`, `step_ns`, `ratio` (to
        the median of its kind; NaN for the row outside), `outlier`, `because` (the part that makes most of the
        difference; None otherwise). The sum over a phase is its busy time.
    """
    limit = of.thresholds.limit("layer_outlier", "ratio")
    pieces = _pieces(of, ["layer", "module"])
    steps = _steps(of)
    parts = [
        _phase_layers(str(phase), some, steps.get(str(phase), 1), limit) for phase, some in pieces.groupby("phase")
    ]
    columns = ["phase", "layer", "kernels", "exclusive_ns", "steps", "step_ns", "ratio", "outlier", "because"]
    if not parts:
        return pd.DataFrame(columns=columns)
    table = pd.concat(parts, ignore_index=True)
    order = table["phase"].map({phase: i for i, phase in enumerate((*PHASES, "all"))})
    return table.assign(order=order).sort_values(["order", "layer"], ignore_index=True)[columns]


@dataclass(frozen=True)
class SlowLayers:
    """Neighbouring layers of a phase that take longer, or shorter, than the others of their kind.

    Attributes
    ----------
    ratio
        Mean of their times over the median.
    because
        The part that makes most of the difference, where it is the same in all.
    within
        The run begins at the first layer or reaches the last, not both: then something changed within the step, such
        as the device's clock, rather than from layer to layer.
    """

    phase: str
    first: int
    last: int
    ratio: float
    because: str | None
    within: bool
    steps: int


def slow_layers(layers: pd.DataFrame) -> list[SlowLayers]:
    """The runs of outliers in a `layer_table`, in reading order."""
    found: list[SlowLayers] = []
    for phase, some in layers.dropna(subset="layer").groupby("phase", sort=False):
        rows = some.sort_values("layer")
        marked = rows[rows["outlier"].astype(bool)]
        number = marked["layer"].astype("int64")
        for _, run in marked.groupby(number.to_numpy() - np.arange(len(marked)), sort=False):
            slow = run["ratio"].astype("float64")
            causes = run["because"].dropna().unique()
            first, last = int(run["layer"].iloc[0]), int(run["layer"].iloc[-1])
            found.append(
                SlowLayers(
                    phase=str(phase),
                    first=first,
                    last=last,
                    ratio=float(slow.mean()),
                    because=str(causes[0]) if len(causes) == 1 else None,
                    within=len(run) > 2 and (first == 0) != (last == int(rows["layer"].iloc[-1])),
                    steps=int(run["steps"].iloc[0]),
                )
            )
    return found


def _phase_layers(phase: str, pieces: pd.DataFrame, steps: int, limit: float) -> pd.DataFrame:
    by = pieces.groupby("layer", dropna=False)
    sums = by["exclusive_ns"].sum()
    table = pd.DataFrame(
        {
            "phase": phase,
            "layer": pd.array(sums.index, dtype="Int64"),
            "kernels": by["row"].nunique().to_numpy(),
            "exclusive_ns": sums.to_numpy(np.int64),
            "steps": steps,
            "step_ns": sums.to_numpy(np.float64) / steps,
            "ratio": np.nan,
            "outlier": False,
            "because": None,
        }
    )
    inside = pieces[pieces["layer"].notna()]
    if inside.empty:
        return table
    by_module = inside.pivot_table(
        index="layer", columns="module", values="exclusive_ns", aggfunc="sum", fill_value=0, observed=True
    )
    times = inside.groupby("layer")["exclusive_ns"].sum()
    kinds = inside.groupby("layer")["module"].agg(_kind)
    for kind in kinds.unique():
        layers = kinds.index[kinds == kind]
        own = times.loc[layers].astype("float64")
        median = float(own.median())
        spread = _SPREAD * float((own - median).abs().median())
        for layer, time in own.items():
            at = table.index[(table["layer"] == layer).fillna(False).to_numpy(bool)][0]
            table.loc[at, "ratio"] = time / median if median else np.nan
            far = abs(time - median) > spread and not 1 / limit <= time / median <= limit if median else False
            if far and len(layers) > 2:
                table.loc[at, "outlier"] = True
                if layer in by_module.index and len(by_module.columns):
                    difference = by_module.loc[layer] - by_module.loc[by_module.index.isin(layers)].median()
                    table.loc[at, "because"] = str((difference * np.sign(time - median)).idxmax())
    return table


def _kind(modules: pd.Series[Any]) -> str:
    """What a layer is made of: dense or experts, attention or none. Norms do not count, for the first can be fused."""
    return ", ".join(sorted({str(m) for m in modules.dropna() if str(m).startswith(("self_attn.", "mlp."))}))


def _pieces(of: Attribution, columns: list[str]) -> pd.DataFrame:
    taken = of.rows[columns].iloc[of.pieces["row"].to_numpy()].reset_index(drop=True)
    return pd.concat([of.pieces.reset_index(drop=True), taken], axis=1)


def _steps(of: Attribution) -> dict[str, int]:
    """Steps of each phase."""
    return {str(phase): int(n) for phase, n in of.steps["phase"].astype(str).value_counts().items() if n}


def to_json(of: Attribution) -> dict[str, Any]:
    """The attribution of a rank as the JSON contract has it: `rungs`, `modules`, `layers`, and how they were found."""
    rungs, modules, layers = rung_table(of), module_table(of), layer_table(of)
    matched = [match for match in of.matches if match.accepted]
    return {
        "rungs": {
            row.rung: {"kernels": int(row.kernels), "exclusive_ns": int(row.exclusive_ns), "share": _number(row.share)}
            for row in rungs.itertuples()
        },
        "n_layers": of.n_layers or None,
        "alike": of.alike,
        "teacher": {
            "steps": len(of.matches),
            "matched": len(matched),
            "least_share": min((match.share for match in matched), default=None),
        }
        if of.matches
        else None,
        "modules": [
            {
                "phase": row.phase, "module": _text(row.module), "source": _text(row.source),
                "kernels": int(row.kernels), "exclusive_ns": int(row.exclusive_ns), "steps": int(row.steps),
                "share": _number(row.share),
            }
            for row in modules.itertuples()
        ],
        "layers": [
            {
                "phase": row.phase, "layer": None if pd.isna(row.layer) else int(row.layer),
                "kernels": int(row.kernels), "exclusive_ns": int(row.exclusive_ns), "steps": int(row.steps),
                "ratio": _number(row.ratio), "outlier": bool(row.outlier), "because": _text(row.because),
            }
            for row in layers.itertuples()
        ],
    }  # fmt: skip


def _text(value: Any) -> str | None:
    return None if pd.isna(value) else str(value)


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)
