"""Accuracy of a study's variants, as `accuracy.json` of each tells it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from perflab.analysis.quantization.estimate import Estimate
from perflab.analysis.quantization.recognised import format_label
from perflab.analysis.quantization.task_scores import TaskScore
from perflab.analysis.quantization.tradeoffs import BASELINE, Accuracy, Place
from perflab.knowledge.quantization_formats import format_named
from perflab.messages import say
from perflab.tasks.quantize.sources import Source

FILE = "accuracy.json"
_SCHEMA = 1


def accuracy_of_study(source: Source, model: str) -> tuple[dict[str, Accuracy], list[str]]:
    """Variant -> accuracy, and what could not be read, a sentence each.

    Parameters
    ----------
    model
        The label of the study's model by its shape, where a run of it tells; empty: its name stands.
    """
    found: dict[str, Accuracy] = {}
    missing: list[str] = []
    for variant, folder in source.accuracy.items():
        try:
            told = json.loads((folder / FILE).read_text(encoding="utf-8"))
            if not isinstance(told, dict):
                raise ValueError("it is no JSON object")
            if isinstance(told.get("schema"), int) and told["schema"] > _SCHEMA:
                raise ValueError(f"schema {told['schema']} is newer than this perflab reads")
            name = BASELINE if told.get("format") == BASELINE else variant
            found[name] = replace(_accuracy(told, source, model), label=_label(told, variant))
        except (OSError, ValueError, TypeError) as error:
            why = str(error).splitlines()[0]
            missing.append(say("tradeoffs.missing.unreadable", file=_shown(folder), why=why))
    return found, missing


def _shown(folder: Path) -> str:
    return f"{folder.name}/{FILE}"


def _accuracy(told: Mapping[str, Any], source: Source, model: str) -> Accuracy:
    engine, text, named = (_part(told, name) for name in ("engine", "text", "model"))
    decoding, control = _part(told, "decoding"), _part(told, "control")
    place = Place(
        source=source.name,
        model=model or str(named.get("name") or named.get("id") or "unknown model"),
        random_weights=False,
        machine=str(engine.get("device") or ""),
        vllm=str(engine.get("vllm") or ""),
    )
    return Accuracy(
        place=place,
        perplexity=_estimate(told.get("perplexity")),
        perplexity_ratio=_estimate(told.get("perplexity_ratio")),
        agreement=_estimate(told.get("agreement")),
        kl=_estimate(told.get("kl")),
        kl_is_lower_bound=told.get("kl_is_lower_bound") is True,
        decode_kl=_estimate(decoding.get("kl")),
        decode_agreement=_estimate(decoding.get("agreement")),
        control_kl=_estimate(control.get("kl")),
        tokens=_whole(text.get("tokens")),
        documents=_whole(text.get("documents")),
        text=str(text.get("what") or ""),
        executed=str(told.get("executed") or told.get("executed_by") or ""),
        sentence=str(_part(told, "verdict").get("sentence") or ""),
        notes=_texts(told.get("notes")),
        tasks=_tasks(told.get("tasks")),
    )


def _tasks(told: Any) -> tuple[TaskScore, ...]:
    """Entries of tasks; what is none of ours is passed over."""
    entries = told if isinstance(told, list) else []
    return tuple(_task(one) for one in entries if isinstance(one, Mapping) and isinstance(one.get("name"), str))


def _task(one: Mapping[str, Any]) -> TaskScore:
    flips, verdict, shots = _part(one, "flips"), _part(one, "verdict"), one.get("shots")
    return TaskScore(
        name=one["name"],
        metric=str(one.get("metric") or ""),
        tasks=_texts(one.get("tasks")),
        shots=tuple(n for n in shots if _whole(n) is not None) if isinstance(shots, list) else (),
        documents=_whole(one.get("documents")),
        value=_estimate(one.get("value")),
        baseline=_estimate(one.get("baseline")),
        difference=_estimate(one.get("difference")),
        lost=_whole(flips.get("lost")),
        won=_whole(flips.get("won")),
        flips_p=_number(flips.get("p")),
        word=str(verdict.get("word") or ""),
        sentence=str(verdict.get("sentence") or ""),
        notes=_texts(one.get("notes")),
        failed=str(one.get("failed") or ""),
    )


def _texts(told: Any) -> tuple[str, ...]:
    return tuple(one for one in told if isinstance(one, str)) if isinstance(told, list) else ()


def _label(told: Mapping[str, Any], variant: str) -> str:
    """The short label of the format that was scored; the file's own where the format is not known."""
    kind = format_named(str(told.get("format") or variant))
    given = str(told.get("label") or "")
    return given if kind is None or given not in ("", kind.label) else format_label(kind)


def _part(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = told.get(name)
    return found if isinstance(found, Mapping) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _estimate(told: Any) -> Estimate | None:
    """None where nothing was measured; an interval needs both ends."""
    if not isinstance(told, Mapping) or (value := _number(told.get("value"))) is None:
        return None
    low, high = _number(told.get("ci_low")), _number(told.get("ci_high"))
    if low is None or high is None:
        low = high = None
    return Estimate(value, low, high, _whole(told.get("n")) or 1)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
