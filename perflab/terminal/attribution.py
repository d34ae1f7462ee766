"""What `perflab breakdown` prints of operators, layers and parts of the model."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from perflab import units
from perflab.analysis.attribution import Attribution
from perflab.analysis.attribution.summary import SlowLayers, layer_table, module_table, rung_table, slow_layers
from perflab.tasks.breakdown import RankBreakdown
from perflab.terminal.text import table, wrapped

_SHOWN, _RUNS = 12, 4
_LEAST = 0.005
"""Parts below this share in every phase are shown together."""
_ORDER = ("decode", "mixed", "prefill", "all")
_RUNGS = {
    "launch": "launched from an operator", "capture": "capture trace", "teacher": "teacher trace",
    "position": "inferred from the order of kernels", "name": "category only", "none": "nothing known",
}  # fmt: skip


def attribution(ranks: Sequence[RankBreakdown]) -> str:
    """Parts of the model by phase, how they are known, and layers that stand out, of the first rank; empty for none."""
    rank = next((one for one in ranks if one.attribution is not None), None)
    if rank is None or rank.attribution is None or not rank.busy_ns:
        return ""
    found = rank.attribution
    of = f" of rank {rank.rank}" if len(ranks) > 1 else ""
    layers = f"{found.n_layers} layers" if found.n_layers else "layers cannot be told apart"
    return "\n".join(filter(None, (f"Parts of the model{of}, {layers}", _parts(found), _known(found), _layers(found))))


def _parts(found: Attribution) -> str:
    modules = module_table(found)
    names = modules["module"].where(modules["module"].notna(), "(not known)")
    parts = modules.assign(name=names).set_index(["phase", "name"])
    phases = [phase for phase in _ORDER if phase in set(modules["phase"])]
    sizes = {name: max(_of(parts, phase, name)[1] for phase in phases) for name in dict.fromkeys(names)}
    lead = sorted(sizes, key=lambda name: (-_of(parts, phases[0], name)[0], -sizes[name]))
    shown = [name for name in lead if sizes[name] >= _LEAST][:_SHOWN]
    rest = [name for name in lead if name not in shown]
    rows = [[name, *_cells([_of(parts, phase, name) for phase in phases])] for name in shown]
    if rest:
        sums = [
            (sum(_of(parts, phase, name)[0] for name in rest), sum(_of(parts, phase, name)[1] for name in rest))
            for phase in phases
        ]
        rows.append([f"{len(rest)} smaller", *_cells(sums)])
    head = [cell for phase in phases for cell in ("whole window" if phase == "all" else phase, "")]
    return table(["time a step, share of busy time", *head], rows)


def _of(parts: pd.DataFrame, phase: str, name: str) -> tuple[float, float]:
    """Time of a part in a step of a phase, and its share of busy time."""
    if (phase, name) not in parts.index:
        return 0.0, 0.0
    row = parts.loc[(phase, name)]
    return float(row["step_ns"]), float(row["share"])


def _cells(values: list[tuple[float, float]]) -> list[str]:
    return [
        cell for ns, share in values for cell in ((units.show_time(ns), units.show_share(share)) if ns else ("-", ""))
    ]


def _known(found: Attribution) -> str:
    rungs = rung_table(found)
    told = [
        f"{_RUNGS[row.rung]} {units.show_share(float(row.share))}"
        for row in rungs.itertuples()
        if row.exclusive_ns and not pd.isna(row.share)
    ]
    return wrapped(f"How it is known: {', '.join(told)}.", "  ", "    ") if told else ""


def _layers(found: Attribution) -> str:
    layers = layer_table(found)
    runs = slow_layers(layers)
    if not found.n_layers:
        return ""
    if runs:
        return "\n".join(wrapped(_slow(one), "  ", "    ") for one in runs[:_RUNS])
    spreads = []
    for phase, some in layers.dropna(subset="layer").groupby("phase", sort=False):
        ratio = some["ratio"].dropna().astype("float64")
        if len(ratio):
            spreads.append(f"{units.show_share(float(ratio.max() - ratio.min()))} in {phase}")
    return wrapped(f"Layers are alike: {', '.join(spreads)} from shortest to longest.", "  ", "    ") if spreads else ""


def _slow(one: SlowLayers) -> str:
    which = f"Layer {one.first}" if one.first == one.last else f"Layers {one.first} to {one.last}"
    of = "the window" if one.phase == "all" else f"{one.phase} ({one.steps} step{'s' if one.steps != 1 else ''})"
    how = f"{units.show_share(abs(one.ratio - 1))} {'longer' if one.ratio > 1 else 'less'}"
    part = f", most of it in {one.because}" if one.because else ""
    part += " (transfer, or waiting for another rank)" if part.endswith("communication") else ""
    why = "; something changed within the step, such as the GPU's clock" if one.within else ""
    return f"{which} of {of} take{'s' if one.first == one.last else ''} {how} than the median layer{part}{why}."
