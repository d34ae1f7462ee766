"""One finding: what to change, why, how sure, and how to confirm it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perflab.analysis.check import Check
from perflab.knowledge.thresholds import Thresholds, own_thresholds
from perflab.messages import say
from perflab.runs import Engine

_NAME = re.compile(r"[A-Za-z]\w*")
_NOT_TEXT = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))

Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True)
class Finding:
    """What a rule found.

    Attributes
    ----------
    id
        Stable identifier of the rule.
    confidence
        0 to 1: how sure the cause is, not the effect.
    impact
        `value` and `unit`; None where it cannot be put in numbers.
    change, check
        What to change, with vLLM's own flag, and the command that would confirm it.
    settings
        The change as engine arguments and their values, where it is exactly that.
    withheld
        The evidence was there, but a check it rests on failed; `title` says which.
    """

    id: str
    severity: Severity
    confidence: float
    title: str
    impact: dict[str, Any] | None
    evidence: tuple[str, ...]
    change: str
    check: str
    run: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    withheld: bool = False

    def to_json(self) -> dict[str, Any]:
        """The finding as the JSON contract has it."""
        found: dict[str, Any] = {
            "id": self.id,
            "severity": self.severity,
            "confidence": self.confidence,
            "title": self.title,
            "impact": self.impact,
            "evidence": list(self.evidence),
            "change": self.change,
            "check": self.check,
        }
        more = {"run": self.run, "settings": dict(self.settings), "withheld": self.withheld}
        return found | {name: value for name, value in more.items() if value}


def _as_yaml(value: Any) -> str:
    """JSON, which is YAML too; a name that YAML takes for text as it stands."""
    is_name = isinstance(value, str) and _NAME.fullmatch(value) and value.lower() not in _NOT_TEXT
    return value if is_name else json.dumps(value)


@dataclass(frozen=True)
class Again:
    """How a captured run can be made once more.

    Attributes
    ----------
    experiment
        The experiment file, as it was given.
    run
        The run directory.
    """

    experiment: str
    run: str

    def with_settings(self, settings: Mapping[str, Any]) -> str:
        """The command that runs the experiment with these engine arguments and compares the two."""
        changes = [f"engine.args.{name}={_as_yaml(value)}" for name, value in settings.items()]
        options = [part for change in changes for part in ("--set", change)]
        after = "runs/changed"
        again = shlex.join(["perflab", "run", self.experiment, *options, "-o", after])
        return f"{again} && {shlex.join(['perflab', 'compare', self.run, after])}"


def withheld(finding: Finding, failed: Check) -> Finding:
    """The finding without its verdict, and the reason."""
    return Finding(
        id=finding.id,
        severity="info",
        confidence=0.0,
        title=say("finding.withheld.title", what=finding.title),
        impact=None,
        evidence=(failed.detail,),
        change=say("finding.withheld.change"),
        check="",
        run=finding.run,
        withheld=True,
    )


def severity_of(share: float, name: str, thresholds: Thresholds | None = None) -> Severity | None:
    """How grave a share is by the levels of a threshold; None below all of them, or where none is set."""
    known = own_thresholds() if thresholds is None else thresholds
    levels: tuple[Severity, ...] = ("critical", "warning", "info")
    limits = [(level, known.maybe(name, level)) for level in levels]
    return next((level for level, limit in limits if limit is not None and share >= limit), None)


def bench_command(
    engine: Engine,
    *,
    seed: int = 1,
    lengths: tuple[int, int] = (512, 128),
    prompts: int = 128,
    load: str = "--max-concurrency 8",
) -> str:
    """`vllm bench serve` against a running server: run once before and once after the change.

    Lengths that the server's `max_model_len` does not hold are made shorter.
    """
    longest = number(engine.settings.get("max_model_len"))
    if longest and sum(lengths) > longest:
        lengths = (int(longest) * 3 // 4, int(longest) * 3 // 16)
    model = engine.settings.get("served_model_name") or engine.model or "MODEL"
    name = model[0] if isinstance(model, list) and model else model
    return (
        f"vllm bench serve --model {name} --dataset-name random --random-input-len {lengths[0]}"
        f" --random-output-len {lengths[1]} --num-prompts {prompts} {load} --ignore-eos --temperature 0 --seed {seed}"
    )


def is_on(value: Any) -> bool:
    """Whether a setting is true, as Python or a log writes it."""
    return value is True or str(value).strip().lower() == "true"


def number(value: Any) -> float | None:
    """A setting as a number; None where it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
