"""The first page of a report, as plain records: what matters most over all runs, what can be doubted, where it is from.

Findings and checks of several runs that say the same are told once, with the runs they are of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perflab.report import blocks
from perflab.tasks.machines import is_cpu

Data = Mapping[str, Any]

_VERDICTS, _CAUSES = "change_", "step_time"
"""How ids of findings of a comparison begin: what it decided, and where time changed."""
_STATES = ("fail", "warn", "pass", "not_applicable")


@dataclass(frozen=True)
class Found:
    """A finding: its card's anchor, the number of the section it stands in, and the page (none: this one)."""

    finding: Data
    anchor: str
    number: str
    page: str = ""

    @property
    def link(self) -> str:
        """Where its card is."""
        return f"{self.page}#{self.anchor}"


@dataclass(frozen=True)
class Group:
    """One rule's finding over several runs: the gravest in full, the others by their runs."""

    first: Found
    others: tuple[Found, ...] = ()

    @property
    def members(self) -> tuple[Found, ...]:
        """All of them."""
        return (self.first, *self.others)


@dataclass(frozen=True)
class Doubt:
    """A check that did not pass, once for all that it is about."""

    check: Data
    count: int
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """Runs of one kind of machine and one engine."""

    machine: str
    hardware: tuple[str, ...]
    engine: str
    models: tuple[str, ...]
    dates: tuple[str, str]
    runs: tuple[str, ...]
    unfinished: tuple[tuple[str, str], ...] = ()


def groups(found: Sequence[Found]) -> list[Group]:
    """Findings ranked by severity, confidence and impact; what one rule says of several runs together.

    Two findings of one rule about the same run are two, as of prefill and of decode. Those withheld come last.
    """
    made: list[list[Found]] = []
    for one in sorted(found, key=_rank):
        fitting = next(
            (
                members
                for members in made
                if members[0].finding["id"] == one.finding["id"]
                and bool(members[0].finding.get("withheld")) == bool(one.finding.get("withheld"))
                and all(_run(other) != _run(one) for other in members)
            ),
            None,
        )
        if fitting is None:
            made.append([one])
        else:
            fitting.append(one)
    return [Group(members[0], tuple(members[1:])) for members in made]


def top(found: Sequence[Group], limit: int = 3) -> list[Group]:
    """The most important ones; nothing that is withheld."""
    return [group for group in found if not group.first.finding.get("withheld")][:limit]


def steps(found: Sequence[Group]) -> list[Data]:
    """What to do about them, in their order; the same advice once. A cause named by a comparison is no advice."""
    seen: dict[str, Data] = {}
    for group in found:
        finding = group.first.finding
        if finding.get("change") and not str(finding["id"]).startswith(_CAUSES):
            seen.setdefault(str(finding["change"]), finding)
    return list(seen.values())


def counts(checks: Sequence[Data]) -> dict[str, int]:
    """How many checks came to what."""
    return {state: sum(check["status"] == state for check in checks) for state in _STATES}


def worst(checks: Sequence[Data]) -> str:
    """`fail`, `warn`, or `pass`; empty where nothing was checked."""
    known = {str(check["status"]) for check in checks}
    return next((state for state in ("fail", "warn") if state in known), "pass" if known else "")


def doubts(checks: Sequence[Data]) -> list[Doubt]:
    """Checks that failed or warn, those that failed first; one that did for several runs once."""
    found: dict[tuple[str, str], list[Data]] = {}
    for state in ("fail", "warn"):
        for check in checks:
            if check["status"] == state:
                found.setdefault((state, str(check["check"])), []).append(check)
    return [
        Doubt(of[0], len(of), tuple(dict.fromkeys(source for one in of if (source := str(one.get("source") or "")))))
        for of in found.values()
    ]


def origins(runs: Sequence[Data]) -> list[Origin]:
    """Where the figures are from: runs by machine and engine, GPUs before CPUs."""
    found: dict[tuple[str, str], list[Data]] = {}
    for run in runs:
        found.setdefault((str(run.get("machine") or ""), str(run.get("engine") or "")), []).append(run)
    made = [_origin(machine, engine, of) for (machine, engine), of in found.items()]
    return sorted(made, key=lambda origin: is_cpu(origin.machine))


def notes(runs: Sequence[Data]) -> list[tuple[str, tuple[str, ...]]]:
    """Remarks on the runs, each once, with the names of its runs unless it is of all; of most runs first."""
    told: dict[str, list[str]] = {}
    for run in runs:
        for note in run.get("notes", ()):
            told.setdefault(str(note), []).append(str(run["run"]))
    ordered = sorted(told.items(), key=lambda item: -len(item[1]))
    return [(note, () if len(of) == len(runs) else tuple(of)) for note, of in ordered]


def _origin(machine: str, engine: str, runs: Sequence[Data]) -> Origin:
    def known(name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(run[name]) for run in runs if run.get(name)))

    dates = sorted(known("created")) or [""]
    unfinished = [(str(run["run"]), str(run.get("status"))) for run in runs if run.get("status") != "complete"]
    names = tuple(str(run["run"]) for run in runs)
    return Origin(
        machine, _fullest(known("hardware")), engine, known("model"), (dates[0], dates[-1]), names,
        tuple(one for one in unfinished if one[1] != "None"),
    )  # fmt: skip


def _fullest(told: Sequence[str]) -> tuple[str, ...]:
    """Without what another says as well, and more: `NVIDIA H200` beside `NVIDIA H200 (140.4 GiB), driver 580`."""
    return tuple(one for one in told if not any(other.startswith(f"{one} (") for other in told))


def _rank(one: Found) -> tuple[bool, int, bool, float, float]:
    """What is withheld last; then by severity, a comparison's verdict before its causes, confidence and impact."""
    value = (one.finding.get("impact") or {}).get("value")
    severity, confidence = blocks.rank(one.finding)
    decided = str(one.finding["id"]).startswith(_VERDICTS)
    return bool(one.finding.get("withheld")), severity, not decided, confidence, -abs(float(value or 0.0))


def _run(one: Found) -> str:
    return str(one.finding.get("run") or "")
