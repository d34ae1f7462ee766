"""Sentences about a study's tasks: what a score comes to, what to know beside it, why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perflab.analysis.quantization.task_scores import TaskLoss
from perflab.experiment.study import TaskSpec
from perflab.messages import say


def sentence(name: str, metric: str, found: TaskLoss) -> str:
    """The verdict of one metric."""
    difference = found.difference
    fields: dict[str, Any] = {
        "task": name,
        "metric": metric,
        "value": f"{found.value.value:.3f}",
        "baseline": f"{found.baseline.value:.3f}",
        "change": signed(difference.value),
        "low": "" if difference.low is None else signed(difference.low),
        "high": "" if difference.high is None else signed(difference.high),
        "documents": f"{found.documents:,}",
        "detectable": "" if found.detectable is None else f"{found.detectable:.2g}",
        "chance": "" if found.flips_p is None else f"{found.flips_p * 100:.2g}",
        "share": "" if found.detectable is None else f"{found.detectable * 100:.2g} %",
        "flips": "" if found.lost is None else f" {say('quantize_tasks.flips', lost=found.lost, won=found.won)}",
    }
    return say(f"quantize_tasks.verdict.{'few_flips' if is_of_few_flips(found) else found.word}", **fields)


def is_of_few_flips(found: TaskLoss) -> bool:
    """Whether it is the flips alone that keep an interval without 0 from being called a difference."""
    low, high = found.difference.low, found.difference.high
    return found.word == "none_detectable" and low is not None and high is not None and not low <= 0 <= high


def signed(value: float) -> str:
    """`−0.025`; zero has no sign."""
    return f"{value:+.3f}".replace("-", "−") if round(value, 3) else "0"


def notes(spec: TaskSpec, answer: Mapping[str, Any]) -> list[str]:
    """What a reader has to know beside a score."""
    found = []
    if spec.limit is not None:
        found.append(say("quantize_tasks.note.limit", limit=spec.limit))
    if spec.shots is not None and answer.get("shots") != [spec.shots]:
        given = ", ".join(str(one) for one in answer.get("shots") or [])
        found.append(say("quantize_tasks.note.shots", asked=spec.shots, given=given))
    if answer.get("cut_prompts"):
        found.append(say("quantize_tasks.note.cut", n=answer["cut_prompts"]))
    if answer.get("left_out"):
        found.append(say("quantize_tasks.note.left_out", metrics=", ".join(answer["left_out"])))
    return found


def failure(spec: TaskSpec, answer: Mapping[str, Any]) -> str:
    """Why a task has no score, and what can be done."""
    kind, why = answer.get("failed"), str(answer.get("why") or "")
    if kind == "unknown":
        near = answer.get("near") or []
        more = f" {say('quantize_tasks.near', names=', '.join(near))}" if near else ""
        return say(f"quantize_tasks.{'unknown' if spec.path is None else 'not_in_folder'}", task=spec.name,
                   path=spec.path, near=more)  # fmt: skip
    if kind == "data":
        return say(f"quantize_tasks.{'no_data' if spec.path is None else 'no_own_data'}", task=spec.name, why=why)
    if kind == "group":
        return say("quantize_tasks.group", path=spec.path)
    if kind is None:
        metrics = ", ".join(answer.get("left_out") or []) or "-"
        return say("quantize_tasks.no_mean", task=spec.name, metrics=metrics)
    return say("quantize_tasks.failed", task=spec.name, why=why)
