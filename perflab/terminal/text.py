"""Columns, numbers and marks as the terminal shows them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from perflab.analysis.checks import Check
from perflab.analysis.finding import Finding

WIDTH = 118
"""Columns of running text; tables may be wider."""

MARKS = {"pass": "ok  ", "warn": "WARN", "fail": "FAIL", "not_applicable": "-   "}


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns aligned, the first `left` of them to the left."""
    widths = [max(len(str(line[i])) for line in [head, *rows]) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        padded = [c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
        return ("  " + "  ".join(padded)).rstrip()

    rule = ("  " + "  ".join("-" * w for w in widths)).rstrip()
    return "\n".join([line(head), rule, *(line(row) for row in rows)])


def wrapped(text: str, first: str, rest: str | None = None) -> str:
    """A sentence in lines of at most `WIDTH`; long words (paths, commands) stay whole."""
    indent = first if rest is None else rest
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def check_line(status: str, detail: str) -> str:
    """One check: its mark, then what it says."""
    return wrapped(detail, f"  {MARKS[status]}  ", " " * 8)


def checks(title: str, found: Sequence[Check]) -> str:
    """What can be doubted in full, and a line that names the checks that passed, under a title."""
    doubts = [check for check in found if check.status in ("warn", "fail")]
    lines = [check_line(check.status, check.detail) for check in sorted(doubts, key=lambda c: c.status)]
    passed = [check for check in found if check.status == "pass"]
    told = [check for check in passed if check.check.startswith("user_")]
    names = ", ".join(check.check.replace("_", " ") for check in passed if check not in told)
    lines += [check_line("pass", names)] if names else []
    lines += [check_line("pass", check.detail) for check in told]
    return "\n".join([title, *(lines or ["  nothing to check"])])


def findings(found: Sequence[Finding]) -> str:
    """Each finding with its evidence, the change, and the command that checks it; a command that serves all, once."""
    if not found:
        return "Findings: none"
    commands = {finding.check for finding in found if finding.check}
    once = commands.pop() if len(commands) == 1 and len(found) > 1 else None
    lines = ["Findings"]
    for finding in found:
        lines.append(wrapped(f"{finding.severity}: {finding.title}", "  ", "      "))
        lines += [wrapped(text, "      ") for text in finding.evidence]
        lines += [wrapped(f"change: {finding.change}", "      ", " " * 14)]
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
