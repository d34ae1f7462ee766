"""Can two traces be compared? Checks over both sides of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perflab import units
from perflab.analysis.check import Check
from perflab.analysis.compare.differences import LOAD, Difference, Differences
from perflab.analysis.compare.traces import PhaseComparison
from perflab.messages import say

CHANGE = "what changed"
CAUSE = "why it changed"
SOURCE = "comparison"
_SHOWN = 4


def change_of(phase: str) -> str:
    """The conclusion about one phase that a check can undermine."""
    return f"what changed in {phase} steps"


def comparison_checks(
    phases: Sequence[PhaseComparison],
    differences: Differences,
    *,
    stacks: tuple[bool, bool],
    told: bool,
    steps_known: tuple[bool, bool] = (True, True),
    profilers: tuple[str, str] = ("torch", "torch"),
) -> list[Check]:
    """Every check of a comparison, in reading order.

    Parameters
    ----------
    stacks
        Whether the profiler recorded Python stacks, of baseline and candidate.
    told
        Whether both sides tell their settings.
    steps_known
        Whether steps were found on each side.
    profilers
        Which one recorded each side.
    """
    found = [_profiler(stacks, profilers), *_batches(phases, steps_known), *_kv_tokens(phases)]
    found += [varied_check(differences, told=told), *_load(differences), _passes()]
    return [Check(c.check, c.status, c.detail, c.undermines, SOURCE) for c in found]


def varied_check(differences: Differences, *, told: bool) -> Check:
    """Whether only what was meant to differ does; `told`: both sides tell their settings."""
    if told:
        return _varied(differences)
    return Check("one_difference", "warn", say("compare.one_difference.untold"), (CAUSE,))


def _profiler(stacks: tuple[bool, bool], profilers: tuple[str, str]) -> Check:
    if stacks[0] != stacks[1]:
        return Check("same_profiler", "fail", say("compare.same_profiler.fail"), (CHANGE,))
    if profilers[0] != profilers[1]:
        detail = say("compare.same_profiler.other", baseline=profilers[0], candidate=profilers[1])
        return Check("same_profiler", "warn", detail, (CHANGE,))
    if all(stacks):
        return Check("same_profiler", "warn", say("compare.same_profiler.warn"), (CHANGE,))
    return Check("same_profiler", "pass", say("compare.same_profiler.pass"))


def _batches(phases: Sequence[PhaseComparison], steps_known: tuple[bool, bool]) -> list[Check]:
    if not phases:
        why = "phases" if all(steps_known) else "steps"
        detail = say("compare.batches_alike.no_phases") if why == "phases" else say("compare.batches_alike.no_steps")
        return [Check("batches_alike", "fail", detail, (CHANGE,))]
    same = [one.phase for one in phases if one.alike == "same"]
    found = []
    if same:
        found.append(Check("batches_alike", "pass", say("compare.batches_alike.pass", phases=", ".join(same))))
    for one in phases:
        if one.alike == "partly":
            shares = {side: units.show_share(one.covered(side)) for side in ("baseline", "candidate")}
            detail = say("compare.batches_alike.partly", phase=one.phase, **shares)
            found.append(Check("batches_alike", "warn", detail, (change_of(one.phase),)))
        elif one.alike == "none":
            detail = say("compare.batches_alike.none", phase=one.phase, **_tokens(one))
            found.append(Check("batches_alike", "fail", detail, (change_of(one.phase),)))
    return found


def _tokens(one: PhaseComparison) -> dict[str, str]:
    shown = {}
    for side, time in (("baseline", one.every.baseline), ("candidate", one.every.candidate)):
        shown[side] = "?" if time.tokens is None else f"{time.tokens:,.4g}"
        shown[f"{side}_time"] = "?" if not time.tokens else units.show_time(time.ns / time.tokens)
    return shown


def _kv_tokens(phases: Sequence[PhaseComparison]) -> list[Check]:
    """Attention in decode reads the cache, so steps of like batches differ where contexts do."""
    found = []
    for one in phases:
        before, after = one.shown.baseline.kv_tokens, one.shown.candidate.kv_tokens
        if before and after and abs(after / before - 1) > 0.05:
            detail = say("compare.kv_tokens", phase=one.phase, baseline=f"{before:,.0f}", candidate=f"{after:,.0f}")
            found.append(Check("same_contexts", "warn", detail, (change_of(one.phase),)))
    return found


def _varied(differences: Differences) -> Check:
    own = [one for one in differences.own if not one.key.startswith(LOAD)]
    untold = say("compare.untold", n=len(differences.untold)) if differences.untold else ""
    if not own:
        return Check("one_difference", "pass", f"{say('compare.one_difference.none')} {untold}".strip())
    shown = ", ".join(show_difference(one) for one in own[:_SHOWN])
    shown += say("compare.more", n=len(own) - _SHOWN) if len(own) > _SHOWN else ""
    if all(one.expected for one in own):
        behind = len(differences.found) - len(differences.own)
        follow = say("compare.one_difference.follow", n=behind) if behind else ""
        told = say("compare.one_difference.pass", varied=shown)
        return Check("one_difference", "pass", " ".join(filter(None, (told, follow, untold))))
    told = say("compare.one_difference.warn", n=len(own), shown=shown)
    return Check("one_difference", "warn", f"{told} {untold}".strip(), (CAUSE,))


def _load(differences: Differences) -> list[Check]:
    load = [one for one in differences.own if one.key.startswith(LOAD)]
    if not load:
        return []
    shown = ", ".join(show_difference(one) for one in load)
    return [
        Check(
            "same_load", "pass" if all(one.expected for one in load) else "warn", say("compare.same_load", shown=shown)
        )
    ]


def _passes() -> Check:
    return Check("passes", "warn", say("compare.passes"))


def show_difference(one: Difference) -> str:
    """`quantization` none -> fp8."""
    return say("compare.difference", key=one.key, baseline=_value(one.baseline), candidate=_value(one.candidate))


def _value(value: Any) -> str:
    text = "none" if value is None or value == "" else str(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
