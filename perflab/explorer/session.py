"""What the explorer answers: a question of the page is a mapping, its answer a mapping and arrays. No widget here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from perflab.analysis.kernel_names import short_kernel_name
from perflab.errors import InputError, PerflabError
from perflab.explorer import details, requests, wire
from perflab.explorer.kernels import Matches, Scope, matcher, matches, matching, name_table, occurrence
from perflab.explorer.pictures import edges_of, matched_columns, picture
from perflab.explorer.rank_times import RankTimes
from perflab.explorer.requests import RequestViews
from perflab.explorer.sources import Entry, ReadPass
from perflab.explorer.spans import span_sums
from perflab.messages import say
from perflab.report.views import typical_step
from perflab.schema import PHASES
from perflab.tasks.slow_requests import SlowPoint

Reply = tuple[dict[str, Any], list[bytes]]
Asked = Mapping[str, Any]
MOST_COLUMNS = 20_000
"""Widest picture that is made, in columns."""


class Session:
    """Runs that are explored, and the answers to what a page asks about them.

    Parameters
    ----------
    entries
        From `perflab.explorer.sources.entries`.
    measured
        Single requests; None: none are offered.
    """

    def __init__(self, entries: Sequence[Entry], measured: RequestViews | None = None) -> None:
        self.entries = list(entries)
        self.measured = measured
        self._answers: dict[str, Callable[[Asked], Reply]] = {
            "open": self._open, "view": self._view, "overview": self._overview, "names": self._names,
            "detail": self._detail, "select": self._select, "kernels": self._kernels,
            "occurrence": self._occurrence, "bars": self._bars, "points": self._points,
            "requests": lambda asked: requests.requests_reply(self._point(asked)),
            "cause": lambda asked: requests.cause_reply(
                self._point(asked), [int(one) for one in asked["ids"]], str(asked["metric"])
            ),
            "life": lambda asked: requests.life_reply(self._point(asked), int(asked["id_of"])),
            "similar": self._similar,
        }  # fmt: skip
        self._found = lru_cache(maxsize=16)(_found)

    def answer(self, asked: Asked) -> Reply:
        """The answer to one question; `error` holds one line where it cannot be answered."""
        what = str(asked.get("what"))
        if what not in self._answers:
            return {"error": f"unknown question {what}"}, []
        try:
            return self._answers[what](asked)
        except PerflabError as error:
            return {"error": str(error)}, []
        except (KeyError, IndexError, TypeError, ValueError) as error:
            return {"error": say("explorer.bad_question", what=what, why=f"{type(error).__name__}: {error}")}, []

    def has_requests(self, entry: Entry) -> bool:
        """Whether single requests may be looked at: those of a run directory."""
        return self.measured is not None and self.measured.has(entry)

    def read(self, run: int) -> ReadPass:
        """The pass of an entry."""
        return self._entry({"run": run}).read()

    def ranks(self, asked: Asked) -> list[RankTimes]:
        """The ranks a question is about; all unless it says which."""
        found = self.read(int(asked["run"])).ranks
        wanted = asked.get("ranks")
        return [times for times in found if wanted is None or times.rank.rank in wanted]

    def _one(self, run: int, rank: int) -> RankTimes:
        found = next((times for times in self.read(run).ranks if times.rank.rank == rank), None)
        if found is None:
            raise InputError(say("explorer.no_rank", rank=rank))
        return found

    # A run

    def _open(self, asked: Asked) -> Reply:
        number = int(asked["run"])
        read = self.read(number)
        buffers: list[bytes] = []
        ranks = []
        for times in read.ranks:
            ranks.append(
                {
                    "rank": times.rank.rank, "device": times.rank.device, "kind": times.rank.kind,
                    "activities": len(times.start), "attributed": times.rank.attribution is not None,
                    "lanes": [{"label": lane.label, "kind": lane.kind} for lane in times.lanes],
                    "typical": typical_step(times.rank.steps),
                    "typical_by": {phase: _typical(times, phase) for phase in PHASES},
                }
            )  # fmt: skip
            buffers += wire.steps(times.steps)
        phases = [phase for phase in PHASES if any((t.rank.steps["phase"] == phase).any() for t in read.ranks)]
        told = details.cautions(read.broken)
        reply = {
            "name": self.entries[number].name, "ranks": ranks, "window": list(read.window), "phases": phases,
            "cautions": told,
        }  # fmt: skip
        return reply, buffers

    def _bars(self, asked: Asked) -> Reply:
        """The breakdown of every run that was read, for a phase or `all`; those that were not are named."""
        rows, missing = [], []
        for number, entry in enumerate(self.entries):
            if entry.is_read:
                rows += details.breakdown_rows(number, entry.name, entry.read().broken, str(asked["phase"]))
            elif entry.has_trace:
                missing.append(number)
        return {"rows": rows, "missing": missing}, []

    # The timeline

    def _view(self, asked: Asked) -> Reply:
        start, end, width = _stretch(asked)
        reply: dict[str, Any] = {"bars": [], "columns": [], "found": [], "total": 0}
        bar_buffers: list[bytes] = []
        column_buffers: list[bytes] = []
        found_buffers: list[bytes] = []
        first = 0
        for times in self.ranks(asked):
            found = self._search(times, asked)
            bars, columns = picture(times.lanes, start, end, width)
            for bar in bars:
                reply["bars"].append({"lane": first + bar.lane, "only_named": bar.only_named})
                bar_buffers += wire.bars(bar, found, is_host=times.lanes[bar.lane].kind == "host")
            summed = {one.lane for one in columns}
            for column in columns:
                reply["columns"].append({"lane": first + column.lane})
                column_buffers += wire.columns(column)
            if found is not None:
                for column in matched_columns([one for one in found.lanes if one[0] in summed], start, end, width):
                    reply["found"].append({"lane": first + column.lane})
                    found_buffers += wire.columns(column)
            reply["total"] += wire.activities(times.lanes, bars, columns)
            first += len(times.lanes)
        return reply, [*bar_buffers, *column_buffers, *found_buffers]

    def _overview(self, asked: Asked) -> Reply:
        """Exclusive time of the first rank over its whole time."""
        start, end, width = _stretch(asked)
        ranks = self.ranks(asked)
        if not ranks:
            return {}, [b"", b"", b""]
        ns, _ = ranks[0].alone.between(edges_of(start, end, width))
        column, code = np.nonzero(ns)
        return {}, [
            column.astype(np.uint32).tobytes(), code.astype(np.uint8).tobytes(),
            ns[column, code].astype(np.float64).tobytes(),
        ]  # fmt: skip

    def _names(self, asked: Asked) -> Reply:
        run = int(asked["run"])
        found = []
        for rank, name in asked["names"]:
            full = self._one(run, int(rank)).names.full[int(name)]
            found.append([full, short_kernel_name(full, 64)])
        return {"names": found}, []

    def _detail(self, asked: Asked) -> Reply:
        times = self._one(int(asked["run"]), int(asked["rank"]))
        facts = details.call_facts if asked.get("host") else details.activity_facts
        return {"facts": facts(times, int(asked["row"]))}, []

    def _select(self, asked: Asked) -> Reply:
        start, end, _ = _stretch({**asked, "width": 1})
        sums = span_sums(self.ranks(asked), start, end)
        return {
            "ranks": [
                {
                    "rank": one.rank, "ns": one.ns, "busy_ns": one.busy_ns, "idle_ns": one.idle_ns,
                    "categories": one.categories, "count": one.count, "on_cpu": one.on_cpu,
                }
                for one in sums
            ]
        }, []  # fmt: skip

    # Kernels

    def _kernels(self, asked: Asked) -> Reply:
        pattern = matcher(str(asked.get("text", "")), bool(asked.get("pattern")))
        found = name_table(
            self.ranks(asked), _scope(asked), pattern=pattern, categories=asked.get("categories") or (),
            limit=int(asked.get("limit", 60)),
        )  # fmt: skip
        return wire.name_table(found), []

    def _occurrence(self, asked: Asked) -> Reply:
        best: tuple[int, RankTimes, int, int, int] | None = None
        at, step = int(asked["at"]), 1 if int(asked["step"]) > 0 else -1
        for times in self.ranks(asked):
            found = self._search(times, asked)
            if found is None or (one := occurrence(found, at, step)) is None:
                continue
            # The nearest in the direction asked for; what lies the other way round comes after all that does not.
            far = (int(times.start[one[0]]) - at) * step
            key = far if far > 0 else far + (1 << 62)
            if best is None or key < best[0]:
                best = key, times, one[0], one[1], len(found.rows)
        if best is None:
            return {"row": None}, []
        _, times, row, number, count = best
        return {
            "rank": times.rank.rank, "row": row, "start": int(times.start[row]), "end": int(times.end[row]),
            "number": number, "count": count, "name": times.names.full[int(times.name[row])],
        }, []  # fmt: skip

    # Requests

    def _points(self, asked: Asked) -> Reply:
        return requests.points_reply(self._measured.of(self._entry(asked)))

    def _point(self, asked: Asked) -> SlowPoint:
        return self._measured.point(self._entry(asked), str(asked["point"]))

    def _similar(self, asked: Asked) -> Reply:
        """Of the first profiling pass of the run as it was measured."""
        entry = self._entry(asked)
        ranks = entry.read().ranks
        if not ranks:
            raise InputError(say("explorer.no_trace"))
        return requests.similar_reply(self._point(asked), int(asked["step"]), ranks[0].rank)

    @property
    def _measured(self) -> RequestViews:
        if self.measured is None:
            raise InputError(say("explorer.no_requests"))
        return self.measured

    def _entry(self, asked: Asked) -> Entry:
        number = int(asked["run"])
        if not 0 <= number < len(self.entries):
            raise InputError(say("explorer.no_run", number=number))
        return self.entries[number]

    def _search(self, times: RankTimes, asked: Asked) -> Matches | None:
        """What a search found on a rank; None where nothing is sought. `name`: that name exactly."""
        if asked.get("name"):
            return self._found(times, str(asked["name"]), "name")
        if not asked.get("text"):
            return None
        return self._found(times, str(asked["text"]), "pattern" if asked.get("pattern") else "text")


def _found(times: RankTimes, text: str, how: str) -> Matches:
    names = times.names.full
    if how == "name":
        return matches(times, np.fromiter((name == text for name in names), dtype=bool, count=len(names)))
    return matches(times, matching(names, matcher(text, how == "pattern")))


def _stretch(asked: Asked) -> tuple[int, int, int]:
    """Start, end and width of a picture, in whole nanoseconds and columns.

    Raises
    ------
    InputError
        When there is nothing between them.
    """
    start, end, width = int(asked["start"]), int(asked["end"]), int(asked["width"])
    if end <= start or not 1 <= width <= MOST_COLUMNS:
        raise InputError(say("explorer.bad_stretch", start=start, end=end, width=width))
    return start, end, width


def _scope(asked: Asked) -> Scope:
    scope = asked.get("scope") or {"kind": "all"}
    kind = scope["kind"]
    if kind == "phase" and scope.get("phase") in PHASES:
        return Scope("phase", str(scope["phase"]))
    if kind == "span":
        start, end, _ = _stretch({**scope, "width": 1})
        return Scope("span", "", start, end)
    return Scope("all")


def _typical(times: RankTimes, phase: str) -> int | None:
    steps = times.rank.steps
    of = steps[steps["phase"] == phase]
    return typical_step(of) if len(of) else None
