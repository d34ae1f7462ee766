"""What `perflab quantize` prints: the plan, the outcome of a visit, whether a quantization took effect."""

from __future__ import annotations

from perflab.tasks.quantize.run import Outcome
from perflab.terminal.text import minutes


def quantize_outcome(outcome: Outcome) -> str:
    """What a visit measured, what failed, what is left."""
    lines = [f"{outcome.folder}: {len(outcome.did)} servers measured"]
    lines += [f"  measured: {', '.join(outcome.did)}"] if outcome.did else []
    lines += [f"  left out: {name}: {why}" for name, why in outcome.refused.items()]
    lines += [f"  failed: {name}: {why}" for name, why in outcome.failed.items()]
    if outcome.left:
        lines.append(f"  left: {len(outcome.left)} servers, about {minutes(outcome.left_s)}; the same command goes on")
    lines += [f"  note: {note}" for note in outcome.notes]
    for run in outcome.runs:
        done = sum(point.status == "complete" for point in run.manifest.points)
        lines.append(f"  {run.path.name}: {run.manifest.status}, {done} points")
    return "\n".join(lines)
