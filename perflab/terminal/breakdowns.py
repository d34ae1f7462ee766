"""What `perflab breakdown` prints."""

from __future__ import annotations

from perflab.tasks.breakdown import BreakdownReport
from perflab.terminal.attribution import attribution
from perflab.terminal.collectives import collectives
from perflab.terminal.rooflines import rooflines
from perflab.terminal.step_times import step_times, top_kernels
from perflab.terminal.text import checks, findings


def breakdown(report: BreakdownReport) -> str:
    """The trust report; for each pass the time of a step, what bounds it, kernels, parts, collectives; the findings."""
    sources = dict.fromkeys(check.source for check in report.trust)
    blocks = [
        checks(f"Can it be trusted? {source}", [c for c in report.trust if c.source == source]) for source in sources
    ]
    for one in report.passes:
        blocks += [step_times(one), rooflines(one), top_kernels(one), attribution(one.ranks)]
        if one.communication is not None:
            blocks.append(collectives(one.communication, one.source.run))
    return "\n\n".join([*filter(None, blocks), findings(report.findings)]).rstrip()
