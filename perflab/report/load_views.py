"""Loads of a latency report, cut to what one table, figure or paragraph shows; pieces: see `perflab.report.views`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from perflab import units
from perflab.analysis.goodput import OWN
from perflab.analysis.load.curve import LoadCurve
from perflab.analysis.load.phases import TURNOVERS, LoadPhases
from perflab.analysis.load.ttft_split import TtftSplit
from perflab.analysis.rules.load import show_load
from perflab.messages import say
from perflab.plots import style
from perflab.plots.scales import digits, metric_words
from perflab.report.views import Pieces, run_name
from perflab.tasks.latency import LatencyReport, MeasuredPoint
from perflab.tasks.load import LoadAnswer
from perflab.tasks.machines import machine_at

CAUSES: Mapping[str, str] = {
    "client": "client", "kv_cache": "KV cache full", "batch_limit": "batch full", "compute": "compute",
    "token_budget": "step's token budget", "weights": "reading weights", "queue": "queue",
}  # fmt: skip
"""What limits a load, in a table's words."""

_WIDE = 4.0
"""Neighbours of a knee that are further apart than this leave its place open; loads between them are proposed."""


def load_table(report: LatencyReport) -> pd.DataFrame:
    """A row a run, workload and load: what it buys, what it costs, and what limits it as far as that is known."""
    rows = [
        {
            "run": name, "load": f"{answer.curve.lengths} {row['load']}", "in flight": row["in_flight"],
            "requests/s": row["requests_per_s"], "output tokens/s": row["output_tokens_per_s"],
            "per GPU": row["output_tokens_per_s"] / answer.curve.gpus if answer.curve.gpus else np.nan,
            "input tokens/s": row["input_tokens_per_s"], "E2EL mean (ms)": row["e2el_mean_ms"],
            "gain (%)": row["gain"] * 100,
            "knee": _at_knee(answer.curve, row["x"]),
            "limited by": ", ".join(CAUSES[one.cause] for one in answer.reasons.get(row["x"], ())),
        }
        for name, answer in _named(report)
        for row in answer.curve.table.to_dict("records")
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    return table.drop(columns=[name for name in ("run", "per GPU") if _tells_nothing(table, name)])


def load_pieces(report: LatencyReport) -> Pieces:
    """For `plot_load`: a figure a workload and kind of load, with the curves of all runs that have several loads.

    Its latency is the one whose objective gives way first, with the objective drawn; E2EL without objectives.
    """
    return [
        {
            "table": _joined(group), "kind": kind, "of": lengths, "colours": _colours(report),
            "knees": _knees(group), "limits": _limits(group), **_decisive(group),
        }
        for (lengths, kind), group in _by_workload(report).items()
    ]  # fmt: skip


def goodput_pieces(report: LatencyReport) -> Pieces:
    """For `plot_goodput`: as `load_pieces`; none without objectives."""
    if not report.slos:
        return []
    return [
        {"table": _joined(group), "kind": kind, "of": lengths, "colours": _colours(report), "slos_ms": report.slos}
        for (lengths, kind), group in _by_workload(report).items()
    ]


def cost_pieces(report: LatencyReport, tokens: str = "output") -> Pieces:
    """For `plot_cost`: as `load_pieces`; none without a price."""
    pieces = []
    for (lengths, kind), group in _by_workload(report).items():
        tables = [answer.cost.assign(run=name) for name, answer in group if answer.cost is not None]
        if tables:
            pieces.append({
                "table": pd.concat(tables, ignore_index=True), "tokens": tokens, "kind": kind, "of": lengths,
                "price": report.price_per_gpu_hour, "colours": _colours(report),
            })  # fmt: skip
    return pieces


def split_pieces(report: LatencyReport) -> Pieces:
    """For `plot_ttft_split`: all runs with the server's histograms together; the median repeat of each load."""
    splits = [(name, load, split) for name, load, split in _splits(report)]
    runs = {name for name, _, _ in splits}
    return [{"splits": splits, "of": runs.pop() if len(runs) == 1 else ""}] if splits else []


def phase_pieces(report: LatencyReport) -> Pieces:
    """For `plot_load_phases`: of each run the point with most requests, of a closed and of an open loop."""
    best: dict[tuple[str, bool], MeasuredPoint] = {}
    for measured in report.runs:
        key = (run_name(measured.source), measured.point.load.rate is None)
        if measured.requests is None or measured.over_time.status == "unknown":
            continue
        if key not in best or len(measured.requests) > _size(best[key]):
            best[key] = measured
    return [
        {
            "requests": measured.requests, "chunks": measured.chunks, "phases": measured.over_time,
            "of": f"{name}, {measured.point.load.label}",
        }
        for (name, _), measured in best.items()
    ]  # fmt: skip


def load_sentences(report: LatencyReport) -> str:
    """Of each curve: where its knee is and why, and the most load within the objectives; then what was left out."""
    lines = []
    several = {answer.curve.run for answer in report.load if len(answer.curve.table) > 1}
    for name, answer in _named(report):
        if answer.curve.table.empty:
            continue
        if len(answer.curve.table) > 1 or answer.curve.run not in several:
            lines.append(_knee_sentence(name, answer))
        if answer.limit is not None:
            lines.append(_limit_sentence(name, answer))
    left_out = [f"{name} {one.load} ({one.why})" for name, answer in _named(report) for one in answer.curve.excluded]
    if left_out:
        lines.append(say("load.excluded.told", names=", ".join(left_out)))
    return "\n".join(f"- {line}" for line in lines)


def goodput_sentences(report: LatencyReport) -> str:
    """Of each point that has single requests: how many meet every objective, and by whose definition."""
    if not report.slos:
        return say("goodput.none")
    lines = []
    for measured in report.runs:
        found = measured.goodput
        if found is None or measured.point.repeat:
            continue
        where = {"run": run_name(measured.source), "load": measured.point.load.label}
        if found.per_s is None or found.share is None:
            lines.append(
                f"**{where['run']}** {where['load']}: "
                + say("goodput.unknown", unknown=found.unknown, answered=found.answered)
            )
            continue
        share, per_s = units.show_share(found.share), f"{found.per_s:,.{digits(found.per_s)}f}"
        lines.append(say("goodput.told", **where, good=found.good, answered=found.answered, share=share, per_s=per_s))
    lines.append(say("goodput.own" if set(report.slos) & set(OWN) else "goodput.vllms"))
    return "\n".join(f"- {line}" for line in lines)


def split_sentences(report: LatencyReport) -> str:
    """Of each run the largest part where the first token took longest; then what such means can and cannot tell."""
    found = _splits(report)
    if not found:
        return say("ttft_split.none")
    lines: list[str] = []
    longest: dict[str, tuple[str, TtftSplit]] = {}
    for name, load, split in found:
        lines += split.doubts
        if name not in longest or split.server_ms > longest[name][1].server_ms:
            longest[name] = (load, split)
    for name, (load, split) in longest.items():
        whole = split.client_ms if split.client_ms is not None else split.server_ms
        lines.append(
            say(
                "ttft_split.told",
                run=name,
                load=load,
                ttft=units.show_time(whole * units.NS_PER_MS),
                share=units.show_share((split.part(split.largest) or 0.0) / whole),
                part=say(f"ttft_split.{split.largest}"),
            )
        )
    return "\n".join(f"- {line}" for line in [*dict.fromkeys(lines), say("ttft_split.note")])


def phase_sentences(report: LatencyReport) -> str:
    """What kind of load each of the points of `phase_pieces` was."""
    lines = [_phase_sentence(str(piece["of"]), piece["phases"]) for piece in phase_pieces(report)]
    return "\n".join(f"- {line}" for line in lines)


def phase_table(report: LatencyReport) -> pd.DataFrame:
    """Two rows a point of `phase_pieces`: the part between warm-up and drain, and the whole."""
    names = {
        "phase": "part", "start_s": "from (s)", "end_s": "to (s)", "in_flight": "in flight",
        "output_tokens_per_s": "output tokens/s", "arrived": "requests sent", "ttft_mean_ms": "TTFT mean (ms)",
        "tpot_mean_ms": "TPOT mean (ms)", "e2el_mean_ms": "E2EL mean (ms)",
    }  # fmt: skip
    tables = [
        _between_and_whole(piece["phases"])[list(names)].rename(columns=names).assign(point=piece["of"])
        for piece in phase_pieces(report)
    ]
    if not tables:
        return pd.DataFrame(columns=["point", *names.values()])
    return pd.concat(tables, ignore_index=True)[["point", *names.values()]]


def _between_and_whole(phases: LoadPhases) -> pd.DataFrame:
    table = phases.table[~phases.table["phase"].isin(["warm-up", "drain"])]
    return table.replace({"phase": {"steady": "waves"}}) if phases.status == "waves" else table


def cost_table(report: LatencyReport) -> pd.DataFrame:
    """A row a run, workload and load: the cost of a million input, output and total tokens; empty without a price."""
    rows = [
        {"run": name, "load": f"{answer.curve.lengths} {row['load']}"}
        | {f"million {of} tokens": row[of] for of in ("input", "output", "total")}
        for name, answer in _named(report)
        if answer.cost is not None
        for row in answer.cost.to_dict("records")
    ]
    return pd.DataFrame(rows)


def cost_caption(report: LatencyReport) -> str:
    """What the costs rest on; empty without a price."""
    price = report.price_per_gpu_hour
    gpus = sorted({answer.curve.gpus for answer in report.load if answer.cost is not None and answer.curve.gpus})
    if price is None or not gpus:
        return ""
    return say("load.cost.note", price=f"{price:g}", gpus=style.join([str(n) for n in gpus]))


def _knee_sentence(name: str, answer: LoadAnswer) -> str:
    curve, knee = answer.curve, answer.curve.knee
    where = {"run": name, "lengths": f"{curve.lengths}, {'closed loop' if curve.kind == 'closed' else 'open loop'}"}
    if knee.status == "too_few" or knee.load is None:
        return say("load.knee.too_few", **where, n=len(curve.table))
    load = show_load(curve, knee.load)
    if knee.status == "passed":
        return say("load.knee.passed", **where, load=load)
    if knee.high is None or knee.low is None:
        return " ".join([say("load.knee.not_reached", **where, load=load), *_why(answer, knee.load)])
    rows = curve.table.set_index("x")
    low, high = rows.loc[knee.load], rows.loc[knee.high]
    told = [
        say(
            "load.knee.found",
            **where,
            low=f"{knee.low:g}",
            high=show_load(curve, knee.high),
            load=f"{knee.load:g}",
            load_factor=f"{knee.high / knee.load:.1f}",
            rate_factor=f"{high['requests_per_s'] / low['requests_per_s']:.2f}",
            life_factor=f"{high['e2el_mean_ms'] / low['e2el_mean_ms']:.2f}",
        )
    ]
    if knee.repeats > 1:
        told.append(say("load.knee.agree", agree=knee.agree, repeats=knee.repeats))
    if knee.high / knee.low > _WIDE:
        between = [math.sqrt(knee.low * knee.load), math.sqrt(knee.load * knee.high)]
        told.append(say("load.knee.wide", between=style.join([f"{_round(x)}" for x in between])))
    return " ".join([*told, *_why(answer, knee.high)])


def _why(answer: LoadAnswer, x: float) -> list[str]:
    found = [text for one in answer.reasons.get(x, ()) for text in one.evidence]
    if not found:
        return [say("load.reason.none")]
    return [say("load.reason.at", load=show_load(answer.curve, x)), *found]


def _limit_sentence(name: str, answer: LoadAnswer) -> str:
    limit, curve = answer.limit, answer.curve
    assert limit is not None
    told = style.join([f"{metric_words(slo)[0]} {ms:g} ms" for slo, ms in limit.slos.items()])
    where = {
        "run": name, "lengths": f"{curve.lengths}, {'closed loop' if curve.kind == 'closed' else 'open loop'}",
        "slos": told, "statistic": limit.statistic,
    }  # fmt: skip
    if limit.status == "not_measured":
        return say("load.limit.not_measured", **where)
    breaks = metric_words(limit.breaks)[0] if limit.breaks else ""
    if limit.status == "none_meets" and limit.broken is not None:
        return say("load.limit.none_meets", **where, broken=show_load(curve, limit.broken), breaks=breaks)
    if limit.status == "all_meet" and limit.safe is not None:
        sentence = say("load.limit.all_meet", **where, safe=show_load(curve, limit.safe))
    else:
        assert limit.load is not None and limit.safe is not None and limit.broken is not None
        sentence = say(
            "load.limit.between",
            **where,
            load=show_load(curve, limit.load),
            rate=f"{limit.requests_per_s or 0:,.1f}",
            tokens=f"{limit.output_tokens_per_s or 0:,.0f}",
            safe=f"{limit.safe:g}",
            broken=f"{limit.broken:g}",
            breaks=breaks,
        )
    around = curve.table[curve.table["x"].isin([limit.safe, limit.broken])]
    few = int(around["n"].min())
    more = [] if limit.monotone else [say("load.limit.not_monotone")]
    if limit.statistic.startswith("p") and few * (1 - int(limit.statistic[1:]) / 100) < 1:
        more.append(say("load.limit.few", n=few, statistic=limit.statistic))
    return " ".join([sentence, *more])


def _phase_sentence(of: str, phases: LoadPhases) -> str:
    if phases.status == "too_short":
        return say("phases.too_short", of=of, turnovers=f"{phases.turnovers or 0:.1f}", needed=f"{TURNOVERS:g}")
    if phases.status == "growing":
        return say("phases.growing", of=of, growth=f"{phases.growth or 0:.1f}")
    if phases.status == "waves":
        return say("phases.waves", of=of, lockstep=f"{(phases.lockstep or 0) * 100:.0f} %")
    rates = {phase: phases.of(phase, "output_tokens_per_s") for phase in ("steady", "whole")}
    shown = {phase: say("notebook.not_measured") if rate is None else f"{rate:,.0f}" for phase, rate in rates.items()}
    return say(
        "phases.steady",
        of=of,
        begin=f"{phases.steady_from_s or 0:.1f} s",
        end=f"{phases.steady_to_s or 0:.1f} s",
        tokens=shown["steady"],
        whole_tokens=shown["whole"],
    )


def _named(report: LatencyReport) -> list[tuple[str, LoadAnswer]]:
    """Each answer with the name of its run's directory."""
    names = {measured.run: run_name(measured.source) for measured in report.runs}
    return [(names[answer.curve.run], answer) for answer in report.load]


def _by_workload(report: LatencyReport) -> dict[tuple[str, str], list[tuple[str, LoadAnswer]]]:
    """Curves of several loads, by lengths and kind of load; those of different machines apart, with its name."""
    machines = {measured.run: machine_at(measured.source) for measured in report.runs}
    apart = len(set(machines.values())) > 1
    found: dict[tuple[str, str], list[tuple[str, LoadAnswer]]] = {}
    for name, answer in _named(report):
        if len(answer.curve.table) > 1:
            lengths = f"{answer.curve.lengths}, {machines[answer.curve.run]}" if apart else answer.curve.lengths
            found.setdefault((lengths, answer.curve.kind), []).append((name, answer))
    return found


def _joined(group: Sequence[tuple[str, LoadAnswer]]) -> pd.DataFrame:
    return pd.concat([answer.curve.table.assign(run=name) for name, answer in group], ignore_index=True)


def _decisive(group: Sequence[tuple[str, LoadAnswer]]) -> dict[str, object]:
    """The latency to draw and its limit; nothing without objectives."""
    limits = [answer.limit for _, answer in group if answer.limit is not None]
    if not limits:
        return {}
    name = next((one.breaks for one in limits if one.breaks), next(iter(limits[0].slos)))
    latency = f"{name.removesuffix('_ms')}_{limits[0].statistic}_ms"
    return {"latency": latency, "slo_ms": limits[0].slos[name]}


def _knees(group: Sequence[tuple[str, LoadAnswer]]) -> pd.DataFrame:
    rows = [
        (name, answer.curve.knee.load, answer.curve.knee.low, answer.curve.knee.high)
        for name, answer in group
        if answer.curve.knee.status == "found"
    ]
    return pd.DataFrame(rows, columns=["run", "x", "low", "high"])


def _limits(group: Sequence[tuple[str, LoadAnswer]]) -> pd.DataFrame:
    rows = [
        (name, answer.limit.load)
        for name, answer in group
        if answer.limit is not None and answer.limit.status == "between"
    ]
    return pd.DataFrame(rows, columns=["run", "x"])


def _splits(report: LatencyReport) -> list[tuple[str, str, TtftSplit]]:
    """(run, load, split) of the repeat with the median TTFT, by run and load."""
    groups: dict[tuple[str, str], list[TtftSplit]] = {}
    for measured in report.runs:
        if measured.ttft_split is not None:
            groups.setdefault((run_name(measured.source), measured.point.load.label), []).append(measured.ttft_split)
    return [
        (run, load, sorted(splits, key=lambda one: one.client_ms or one.server_ms)[(len(splits) - 1) // 2])
        for (run, load), splits in groups.items()
    ]


def _colours(report: LatencyReport) -> dict[str, str]:
    """A colour a run, as in the other figures of the report."""
    names = list(dict.fromkeys(run_name(measured.source) for measured in report.runs))
    return dict(zip(names, style.series(len(names)), strict=True))


def _at_knee(curve: LoadCurve, x: float) -> str:
    knee = curve.knee
    if knee.status == "found" and x == knee.load:
        return say("load.at_knee")
    return ""


def _tells_nothing(table: pd.DataFrame, column: str) -> bool:
    if table.empty:
        return False
    if column == "run":
        return bool(table[column].nunique() < 2)
    return bool(table[column].isna().all() or np.allclose(table[column], table["output tokens/s"], equal_nan=True))


def _round(x: float) -> str:
    """A load that is easy to ask for."""
    step = 10 ** math.floor(math.log10(x)) / 2 if x >= 10 else 1
    return f"{max(round(x / step) * step, 1):g}"


def _size(measured: MeasuredPoint) -> int:
    return 0 if measured.requests is None else len(measured.requests)
