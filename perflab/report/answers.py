"""The answer of a notebook in one or two sentences with their numbers, and the few figures a reader asks for first.

An answer is worked out from the same records as the notebook's figures. What a failed check undermines is left out of
it, and where nothing is left, it says that and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis import check as of
from perflab.analysis.check import Check, undermined
from perflab.analysis.compare.metric_findings import metric_word, show_ratio, show_value
from perflab.messages import say
from perflab.plots import style
from perflab.report.gpu_views import answer_table
from perflab.report.points import named_points
from perflab.report.rank_views import waiting_share
from perflab.report.views import pass_names, run_name
from perflab.tasks.breakdown import BreakdownReport
from perflab.tasks.compare import CompareReport
from perflab.tasks.latency import LatencyReport
from perflab.tasks.machines import in_order, is_cpu, machine_at

_PHASES = ("decode", "mixed", "prefill", "all")
_MUCH = 0.25
"""Share of waiting in communication from which on it is told with it."""
_WORK = {
    "GEMM share": "GEMM", "MoE share": "MoE", "attention share": "attention", "other compute share": "other compute",
    "KV and copies share": "KV cache writes and copies", "comm. share": "communication", "idle share": "idle time",
}  # fmt: skip


@dataclass(frozen=True)
class Tile:
    """One figure in large type: `value` with its unit, what it is, and where it was measured."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Answer:
    """What a notebook comes to.

    Attributes
    ----------
    sentences
        One or two, as `perflab.report.blocks.text_html` reads them.
    tiles
        At most three figures.
    runs
        By run, figures for tables over many runs: plain numbers under fixed names, see `latency_answer` and
        `breakdown_answer`.
    """

    sentences: tuple[str, ...]
    tiles: tuple[Tile, ...] = ()
    runs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def latency_answer(report: LatencyReport) -> Answer:
    """How fast: a sentence a machine, over the load that most of its runs share.

    `runs` holds `machine` and `loads`, a list of `lengths`, `load`, `words`, `output_tokens_per_s`, `tpot_p50_ms`,
    `ttft_p50_ms` (medians over repeats, None where not measured), `repeats` and `paced` (sent at a rate), by rising
    throughput.
    """
    points = named_points(report)
    if points.empty:
        return Answer((say("answer.latency.nothing"),))
    # Rows are sorted, so a point is found again by its run and name.
    doubted = _doubted_points(report)
    sound = [key not in doubted for key in zip(points["run"], points["point"], strict=True)]
    by_name = {run_name(one.source): machine_at(one.source) for one in report.runs}
    medians = _medians(points[sound].assign(machine=[by_name.get(name, "") for name in points.loc[sound, "run"]]))
    if medians.empty:
        why = next(iter(doubted.values()), say("answer.latency.no_rate"))
        return Answer((say("answer.latency.withheld", why=why),))
    order = in_order(medians["machine"])
    sentences = [_fastest(machine, medians[medians["machine"] == machine], len(order) == 1) for machine in order]
    figures = {
        name: _loads(by_name.get(name, ""), medians[medians["run"] == name]) for name in dict.fromkeys(points["run"])
    }
    return Answer(tuple(sentences), _latency_tiles(medians), figures)


def breakdown_answer(report: BreakdownReport) -> Answer:
    """Where time goes: a sentence for GPUs, one for CPU engines; of the decode steps where there are any.

    `runs` holds `machine`, `phase`, `step_ns`, `steps`, `shares` (by kind of work) and `bound` (words, or None).
    """
    table = _sound_rows(report)
    if isinstance(table, Answer):
        return table
    machines = {name: machine_at(one.source.files[0]) for one, name in _named_passes(report)}
    kinds = {name: one.ranks[0].kind for one, name in _named_passes(report) if one.ranks}
    phase = next(name for name in _PHASES if name in set(table["phase"]))
    rows = table[table["phase"] == phase]
    sentences = [_where(rows[[kinds[run] == kind for run in rows["run"]]], kind, phase) for kind in ("gpu", "cpu")]
    figures = {str(row["run"]): _parts(machines[str(row["run"])], row) for row in rows.to_dict("records")}
    return Answer(tuple(filter(None, sentences)), _time_tiles(rows, phase), figures)


def ranks_answer(report: BreakdownReport) -> Answer:
    """What several GPUs cost: the communication that nothing hides, over the runs with several ranks."""
    table = _sound_rows(report, of.COMMUNICATION)
    if isinstance(table, Answer):
        return table
    several = {name for one, name in _named_passes(report) if len(one.ranks) > 1}
    phase = next(name for name in _PHASES if name in set(table["phase"]))
    rows = table[(table["phase"] == phase) & table["run"].isin(several)]
    if rows.empty or "comm. share" not in rows:
        return Answer((say("answer.ranks.one_rank"),))
    rows = rows.sort_values("comm. share")
    low, high = rows.iloc[0], rows.iloc[-1]
    fields = {
        "phase": phase, "n": len(rows), "run": high["run"], "low_run": low["run"],
        "time": units.show_time(high["comm. share"] * high["step_ns"]), "step": units.show_time(high["step_ns"]),
        "low": units.show_share(low["comm. share"]), "high": units.show_share(high["comm. share"]),
    }  # fmt: skip
    tile = Tile(say("answer.ranks.tile", phase=phase), str(fields["high"]), str(high["run"]))
    over = "window" if phase == "all" else "step"
    told = say(f"answer.ranks.{'one' if len(rows) == 1 else 'several'}_{over}", **fields)
    waiting = waiting_share(report, str(high["run"]), phase)
    if waiting is not None and waiting >= _MUCH:
        told += " " + say("answer.ranks.waiting", run=high["run"], waiting=units.show_share(waiting))
    return Answer((told,), (tile,))


def compare_answer(report: CompareReport) -> Answer:
    """Did it help: the verdict on the metric that decides with its interval or why there is none, then the cause."""
    sentences, tiles = [], []
    row = report.primary
    if row is None or row.found is None:
        sentences.append(say("answer.compare.nothing"))
    else:
        unit, found = row.metric.unit, row.found
        fields = {
            "metric": metric_word(row.metric.name), "point": row.point, "change": show_ratio(found.ratio),
            "baseline": show_value(found.baseline, unit), "candidate": show_value(found.candidate, unit),
            "low": f"{((found.low or 0) - 1) * 100:+.1f} %", "high": f"{((found.high or 0) - 1) * 100:+.1f} %",
            "why": row.reason,
        }  # fmt: skip
        known = found.low is not None and found.high is not None
        sentences.append(say(f"answer.compare.{row.verdict}", **fields))
        if known and row.verdict in ("better", "worse", "same"):
            sentences[-1] += f" {say('answer.compare.interval', **fields)}"
        note = f"{fields['metric']} {say('answer.at')} {row.point}"
        tiles += [
            Tile(say("answer.compare.baseline"), str(fields["baseline"]), report.baseline.name),
            Tile(say("answer.compare.candidate"), str(fields["candidate"]), report.candidate.name),
            Tile(say("answer.compare.tile"), str(fields["change"]), note),
        ]
    sentences += [finding.title + "." for finding in report.findings if finding.id.startswith("step_time")][:1]
    return Answer(tuple(sentences), tuple(tiles))


# Latency


def _doubted_points(report: LatencyReport) -> dict[tuple[str, str], str]:
    """Points whose latencies or rates a failed check undermines, with its words."""
    found = {}
    for one in report.runs:
        failed = undermined(one.validity, of.LATENCY, of.THROUGHPUT)
        if failed is not None:
            found[run_name(one.source), one.point.id] = failed.detail
    return found


def _medians(points: pd.DataFrame) -> pd.DataFrame:
    """A row a run, lengths and load with its medians over repeats, by rising throughput within a run."""
    keys = ["machine", "run", "lengths", "load"]
    values = ["output_tokens_per_s", "tpot_p50_ms", "ttft_p50_ms", "concurrency", "rate", "input_len", "output_len"]
    grouped = points.groupby(keys, sort=False)
    found = grouped[values].median().assign(repeats=grouped.size()).reset_index()
    found = found.dropna(subset=["output_tokens_per_s"])
    return found.sort_values(["run", "output_tokens_per_s"], kind="stable", ignore_index=True)


def load_words(row: Mapping[str, Any]) -> str:
    """`with 32 requests at once (512 tokens in, 128 out)`."""
    concurrency, rate = row["concurrency"], row["rate"]
    if pd.notna(rate):
        told = say("answer.load.rate", rate=f"{rate:g}")
    elif pd.notna(concurrency):
        told = say("answer.load.one" if concurrency == 1 else "answer.load.closed", n=f"{concurrency:.0f}")
    else:
        told = say("answer.load.all")
    if pd.notna(row["input_len"]) and pd.notna(row["output_len"]):
        told += " " + say("answer.load.lengths", sent=f"{row['input_len']:.0f}", answered=f"{row['output_len']:.0f}")
    return told


def _fastest(machine: str, medians: pd.DataFrame, only: bool) -> str:
    """The runs of one machine at the load most of them share; of one run, its load with the most throughput."""
    kind = "gpu" if not is_cpu(machine) else "only_cpu" if only else "cpu"
    where = say(f"answer.latency.{kind}", machine=machine)
    runs = medians["run"].nunique()
    if runs == 1:
        best = medians.loc[medians["output_tokens_per_s"].idxmax()]
        return say("answer.latency.one", where=where, run=best["run"], load=load_words(best), **_speeds(best))
    shared = medians.groupby(["lengths", "load"]).agg(runs=("run", "nunique"), rate=("output_tokens_per_s", "max"))
    lengths, load = shared.sort_values(["runs", "rate"]).index[-1]
    rows = medians[(medians["lengths"] == lengths) & (medians["load"] == load)].sort_values("output_tokens_per_s")
    best, least = rows.iloc[-1], rows.iloc[0]
    fields = {f"low_{name}": value for name, value in _speeds(least).items()} | _speeds(best)
    told = {"where": where, "load": load_words(best), "n": len(rows), "run": best["run"], "low_run": least["run"]}
    return say("answer.latency.several" if len(rows) > 1 else "answer.latency.one", **told, **fields)


def _speeds(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "rate": units.show_count(row["output_tokens_per_s"]),
        "tpot": _ms(row["tpot_p50_ms"]),
        "ttft": _ms(row["ttft_p50_ms"]),
    }


def _loads(machine: str, medians: pd.DataFrame) -> dict[str, Any]:
    kept = ["lengths", "load", "output_tokens_per_s", "tpot_p50_ms", "ttft_p50_ms", "repeats"]
    rows = [
        {name: None if pd.isna(row[name]) else row[name] for name in kept}
        | {"words": load_words(row), "paced": bool(pd.notna(row["rate"]))}
        for row in medians.to_dict("records")
    ]
    return {"machine": machine, "loads": rows}


def _latency_tiles(medians: pd.DataFrame) -> tuple[Tile, ...]:
    """Highest throughput and lowest latencies among the runs of one machine; none where there are several."""
    if medians["machine"].nunique() > 1:
        return ()
    several = medians["run"].nunique() > 1
    tiles = []
    for column, label, show, best in (
        ("output_tokens_per_s", "answer.tile.rate", lambda v: f"{units.show_count(v)} tokens/s", "idxmax"),
        ("tpot_p50_ms", "answer.tile.tpot", _ms, "idxmin"),
    ):
        known = medians[column].dropna()
        if len(known):
            row = medians.loc[getattr(known, best)()]
            note = f"{row['run']}, {row['lengths']} {row['load']}" if several else load_words(row)
            tiles.append(Tile(say(label), show(row[column]), note))
    return tuple(tiles)


def _ms(value: float) -> str:
    return say("notebook.not_measured") if pd.isna(value) else units.show_time(float(value) * units.NS_PER_MS)


# Time


def _named_passes(report: BreakdownReport) -> list[tuple[Any, str]]:
    return list(zip(report.passes, pass_names(report), strict=True))


def _sound_rows(report: BreakdownReport, *conclusions: str) -> pd.DataFrame | Answer:
    """Rows of `answer_table` whose traces nothing undermines; an answer that says so where there are none."""
    table = answer_table(report)
    if table.empty:
        return Answer((say("answer.breakdown.nothing"),))
    failed: dict[str, Check] = {}
    for one, name in _named_passes(report):
        found = undermined(one.checks, of.BREAKDOWN, *conclusions)
        if found is not None:
            failed[name] = found
    sound = table[~table["run"].isin(set(failed))]
    if sound.empty:
        return Answer((say("answer.breakdown.withheld", why=next(iter(failed.values())).detail),))
    return sound


def _shares(row: Mapping[str, Any]) -> dict[str, float]:
    return {word: float(row[name]) for name, word in _WORK.items() if name in row and pd.notna(row[name])}


def _parts(machine: str, row: Mapping[str, Any]) -> dict[str, Any]:
    bound = row.get("bound by")
    return {
        "machine": machine, "phase": row["phase"], "step_ns": float(row["step_ns"]), "steps": int(row["steps"]),
        "shares": _shares(row), "bound": None if bound is None or pd.isna(bound) else str(bound),
    }  # fmt: skip


def _where(rows: pd.DataFrame, kind: str, phase: str) -> str:
    """Largest part and idle time of the phase, over the runs of a kind; empty where there are none."""
    if rows.empty:
        return ""
    records = rows.to_dict("records")
    largest = [max(_shares(row).items(), key=lambda item: item[1]) for row in records]
    step = "window" if phase == "all" else "step"
    if len(records) == 1:
        row, (part, share) = records[0], largest[0]
        rest = {word: value for word, value in _shares(row).items() if word != part}
        second = max(rest, key=rest.__getitem__, default="")
        fields: dict[str, Any] = {
            "run": row["run"], "phase": phase, "time": units.show_time(row["step_ns"]), "part": part,
            "share": units.show_share(share), "n": int(row["steps"]), "second": second,
            "second_share": units.show_share(rest.get(second, 0.0)),
        }  # fmt: skip
        return say(f"answer.breakdown.{kind}_{step}", **fields) + _bound(records)
    parts = list(dict.fromkeys(part for part, _ in largest))
    shares = [share for _, share in largest]
    told: dict[str, Any] = {
        "phase": phase, "n": len(records), "low": units.show_share(min(shares)), "high": units.show_share(max(shares)),
    }  # fmt: skip
    if len(parts) == 1:
        return say(f"answer.breakdown.{kind}_several", part=parts[0], **told) + _bound(records)
    groups = [
        say(
            "answer.breakdown.in_runs",
            part=part,
            runs=style.join([str(row["run"]) for row, (its, _) in zip(records, largest, strict=True) if its == part]),
        )
        for part in parts
    ]
    return say(f"answer.breakdown.{kind}_differ", parts="; ".join(groups), **told) + _bound(records)


def _bound(records: Sequence[Mapping[Any, Any]]) -> str:
    """What bounds the phase, where all runs that tell agree."""
    known = [row for row in records if row.get("bound by") is not None and pd.notna(row["bound by"])]
    bounds = {str(row["bound by"]) for row in known}
    if len(bounds) != 1 or len(known) < len(records) or bounds == {say("notebook.breakdown.bound.open")}:
        return ""
    reached = [float(row["reached share"]) for row in known if pd.notna(row.get("reached share"))]
    fields = {"bound": bounds.pop(), "low": units.show_share(min(reached, default=0))}
    fields["high"] = units.show_share(max(reached, default=0))
    name = "bound" if not reached else "reached" if fields["low"] == fields["high"] else "reached_range"
    return " " + say(f"answer.breakdown.{name}", **fields)


def _time_tiles(rows: pd.DataFrame, phase: str) -> tuple[Tile, ...]:
    """The largest part, and the time of a step, where there is one run."""
    if len(rows) != 1:
        return ()
    row = rows.to_dict("records")[0]
    part, share = max(_shares(row).items(), key=lambda item: item[1])
    step = Tile(say("answer.tile.step", phase=phase), units.show_time(row["step_ns"]), say("answer.tile.profiled"))
    largest = Tile(say("answer.tile.part", phase=phase), units.show_share(share), part)
    return (largest,) if phase == "all" else (step, largest)
