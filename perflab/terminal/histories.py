"""What `perflab history` prints."""

from __future__ import annotations

import statistics

from perflab.tasks.history import FEWEST, Difference, HistoryReport, Series
from perflab.terminal.text import table

_SHOWN_DIFFERENCES = 6


def history(report: HistoryReport) -> str:
    """A row per figure, then each change with what else changed there."""
    head = ["model", "measured", "metric", "runs", "first", "last", "level", "what happened"]
    machines = {series.key["hardware"] for series in report.series}
    rows = [_series_row(series, len(machines) > 1) for series in report.series]
    blocks = [f"{report.runs} runs below {report.folder}\n" + table(head, rows, left=3)]
    changes = [line for series in report.series for line in _changes(series)]
    blocks += ["Changes\n" + "\n".join(changes)] if changes else []
    if any(series.found.too_few for series in report.series):
        blocks.append(f"Fewer than {FEWEST} runs are too few to tell a change from chance.")
    if report.skipped:
        blocks.append("Not in it\n" + "\n".join(f"  {text}" for text in report.skipped))
    return "\n\n".join(blocks)


def _series_row(series: Series, tell_machine: bool) -> list[str]:
    values = series.rows["value"].tolist()
    level = statistics.median(values[series.found.bounds[-2] :])
    changes, trend = len(series.found.changes), series.found.trend
    happened = [f"{changes} change{'s' if changes > 1 else ''}"] if changes else []
    happened += [f"drifts by {trend.slope:+.2%} a run"] if trend is not None else []
    said = ", ".join(happened) or ("too few runs" if series.found.too_few else "no change")
    model = f"{series.key['model'] or '-'}" + (f" on {series.key['hardware'] or '?'}" if tell_machine else "")
    what = [model, series.name, series.metric, str(len(values))]
    return [*what, *(f"{value:.5g}" for value in (values[0], values[-1], level)), said]


def _changes(series: Series) -> list[str]:
    lines = []
    for change, found in zip(series.found.changes, series.differences, strict=True):
        last, first = series.rows["run"].iloc[change.at - 1], series.rows["run"].iloc[change.at]
        by = "" if change.ratio is None else f", {change.ratio - 1:+.1%}"
        lines.append(
            f"  {series.verdict(change)}: {series.metric} of {series.name} went from {change.before:.5g} to"
            f" {change.after:.5g}{by} (p = {change.p:.2g})"
        )
        lines.append(f"      after {last}, from {first} on ({series.rows['created'].iloc[change.at][:10]})")
        lines += [f"      {_difference(one)}" for one in found[:_SHOWN_DIFFERENCES]]
        more = len(found) - _SHOWN_DIFFERENCES
        lines += [f"      and {more} more differences (--json lists them)"] if more > 0 else []
        lines += [] if found else ["      nothing that the runs record differs there"]
    return lines


def _difference(one: Difference) -> str:
    before, after = ("not told" if value is None else str(value)[:60] for value in (one.before, one.after))
    doubt = "" if one.steady else " (differs in other runs too)"
    runs = f"{abs(one.offset)} run{'s' if abs(one.offset) > 1 else ''}"
    doubt += f" ({runs} {'later' if one.offset > 0 else 'earlier'})" if one.offset else ""
    return f"{one.key}: {before} -> {after}{doubt}"
