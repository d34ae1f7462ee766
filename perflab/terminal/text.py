"""Columns, numbers and marks as the terminal shows them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from perflab.analysis.checks import Check
from perflab.analysis.finding import Finding

MARKS = {"pass": "ok  ", "warn": "WARN", "fail": "FAIL", "not_applicable": "-   "}


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns aligned, the first `left` of them to the left."""
    widths = [max(len(str(line[i])) for line in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return ("  " + "  ".join(padded)).rstrip()

    return "\n".join([line(head), "  " + "  ".join("-" * w for w in widths), *(line(row) for row in rows)])


def checks(title: str, found: Sequence[Check]) -> str:
    """A line a check that applies, under a title."""
    shown = [f"  {MARKS[check.status]}  {check.detail}" for check in found if check.status != "not_applicable"]
    return "\n".join([title, *(shown or ["  nothing to check"])])


def findings(found: Sequence[Finding]) -> str:
    """Each finding with its evidence, the change, and the command that checks it; a command that serves all, once."""
    if not found:
        return "Findings: none"
    commands = {finding.check for finding in found if finding.check}
    once = commands.pop() if len(commands) == 1 and len(found) > 1 else None
    lines = ["Findings"]
    for finding in found:
        lines.append(f"  {finding.severity}: {finding.title}")
        lines += [f"      {text}" for text in finding.evidence]
        lines += [f"      change: {finding.change}"]
        lines += [f"      check:  {finding.check}"] if finding.check and once is None else []
    return "\n".join(lines + ([f"  check:  {once}"] if once else []))


def number(value: Any, digits: int) -> str:
    """A number with thousands separators; `-` where it was not measured."""
    return "-" if value is None or (isinstance(value, float) and math.isnan(value)) else f"{value:,.{digits}f}"


def ms(value: Any) -> str:
    """Milliseconds with two digits."""
    return number(value, 2)


def count(value: Any) -> str:
    """A whole number."""
    return number(value, 0)


def minutes(seconds: float) -> str:
    """Seconds as `m:ss`."""
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02d}"
