"""What `perflab latency` prints about loads: curves with their knee, limits and cost."""

from __future__ import annotations

from collections.abc import Sequence

from perflab.tasks.load import LoadAnswer
from perflab.terminal.text import findings, number, table

_KNEE = {
    "found": "knee between {low:g} and {high:g}, best measured {load:g}",
    "not_reached": "no knee up to {load:g}, the largest load measured",
    "passed": "past the knee already at {load:g}, the smallest load measured",
    "too_few": "too few loads for a knee (three are needed)",
}
_WITHIN = {
    "between": "objectives at {statistic} hold up to {load:.3g} (interpolated between {safe:g} and {broken:g})",
    "all_meet": "objectives at {statistic} hold at every load, up to {safe:g}",
    "none_meets": "objectives at {statistic} hold at no load; the smallest is {broken:g}",
    "not_measured": "objectives at {statistic}: a figure is missing",
}


def loads(answers: Sequence[LoadAnswer]) -> str:
    """A row a load of each curve that has several, then where its knee lies; nothing where there is no such curve."""
    shown = [answer for answer in answers if len(answer.curve.table) > 1 or answer.curve.excluded]
    if not shown:
        return ""
    priced = any(answer.cost is not None for answer in shown)
    head = ["run", "load", "in flight", "req/s", "output tok/s", "E2EL mean", "gain %"]
    head += ["cost/M output"] if priced else []
    rows = [row for answer in shown for row in _rows(answer, priced)]
    notes = [f"  {answer.curve.run}, {answer.curve.lengths}: {'; '.join(_notes(answer))}" for answer in shown]
    found = [finding for answer in shown for finding in answer.findings]
    blocks = [
        "Load (gain: of a relative rise of requests in flight, what throughput takes; the rest is latency)\n"
        + table(head, rows, left=2),
        "\n".join(notes),
    ]
    return "\n\n".join(blocks + ([findings(found)] if found else []))


def _rows(answer: LoadAnswer, priced: bool) -> list[list[str]]:
    costs = {} if answer.cost is None else dict(zip(answer.cost["x"], answer.cost["output"], strict=True))
    return [
        [
            answer.curve.run,
            str(row["load"])
            + (" *" if answer.curve.knee.status == "found" and row["x"] == answer.curve.knee.load else ""),
            number(row["in_flight"], 1),
            number(row["requests_per_s"], 2),
            number(row["output_tokens_per_s"], 1),
            number(row["e2el_mean_ms"], 1),
            number(row["gain"] * 100, 0),
            *([number(costs.get(row["x"]), 3)] if priced else []),
        ]
        for row in answer.curve.table.to_dict("records")
    ]


def _notes(answer: LoadAnswer) -> list[str]:
    knee, limit = answer.curve.knee, answer.limit
    told = [_KNEE[knee.status].format(low=knee.low or 0, high=knee.high or 0, load=knee.load or 0)]
    if knee.repeats > 1:
        told.append(f"{knee.agree} of {knee.repeats} repeats agree")
    if limit is not None:
        fields = {"load": limit.load or 0, "safe": limit.safe or 0, "broken": limit.broken or 0}
        told.append(_WITHIN[limit.status].format(statistic=limit.statistic, **fields))
    told += [f"left out: {one.load} ({one.why})" for one in answer.curve.excluded]
    return told
