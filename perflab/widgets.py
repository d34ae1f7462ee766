"""Widgets for JupyterLab over the tasks' answers and the plot functions; no logic of their own."""

from __future__ import annotations

from typing import Any

import ipywidgets
from matplotlib import pyplot

from perflab.plots.timeline import plot_timeline, span_of_step
from perflab.report.views import run_name, typical_step
from perflab.tasks.breakdown import BreakdownReport, RankBreakdown


def timeline_picker(report: BreakdownReport) -> Any:
    """Pick run and rank, step, and the part of the step to look at; the timeline follows."""
    ranks = {f"{run_name(rank.source)}, rank {rank.rank}": rank for rank in report.ranks if len(rank.steps)}
    if not ranks:
        return ipywidgets.HTML("No trace has steps to look at.")
    chosen = ipywidgets.Dropdown(options=list(ranks), description="run")
    step = ipywidgets.Dropdown(description="step")
    part = ipywidgets.FloatRangeSlider(
        value=(0.0, 1.0), min=0.0, max=1.0, step=0.01, description="part", readout_format=".0%", continuous_update=False
    )

    def offer_steps(_: Any = None) -> None:
        steps = ranks[chosen.value].steps
        step.options = [(f"{row.step} ({row.phase})", int(row.step)) for row in steps.itertuples()]
        step.value = typical_step(steps)

    chosen.observe(offer_steps, names="value")
    offer_steps()
    drawn = ipywidgets.interactive_output(
        lambda name, number, window: _draw(ranks[name], number, window),
        {"name": chosen, "number": step, "window": part},
    )
    return ipywidgets.VBox([ipywidgets.HBox([chosen, step, part]), drawn])


def _draw(rank: RankBreakdown, step: int | None, window: tuple[float, float]) -> None:
    if step is None or step not in set(rank.steps["step"]):
        return
    span = span_of_step(rank.steps, step, rank.rank).part(*window)
    calls = rank.launches if rank.kind == "gpu" else None
    plot_timeline(rank.kernels, span, launches=calls, rank=rank.rank, device=rank.kind.upper())
    pyplot.show()
