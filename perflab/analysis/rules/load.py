"""What a load curve says about the load a server should get."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from perflab import units
from perflab.analysis.finding import Finding, bench_command
from perflab.analysis.load.curve import LoadCurve
from perflab.analysis.load.evidence import LoadEvidence, Reason
from perflab.messages import say
from perflab.runs import Engine

_TOLD = ("client", "kv_cache", "batch_limit", "compute", "token_budget")
"""Causes that lead to a change, in the order in which the first that holds names the finding."""


def past_knee(
    curve: LoadCurve,
    reasons: Sequence[Reason],
    engine: Engine,
    *,
    at_knee: LoadEvidence | None = None,
    past: LoadEvidence | None = None,
) -> Finding | None:
    """Loads beyond the knee were measured, and what limits them is known.

    Parameters
    ----------
    reasons
        What limits the load after the knee.
    at_knee, past
        Evidence at the knee and at the load after it.
    """
    knee = curve.knee
    if knee.status != "found" or knee.load is None or knee.high is None:
        return None
    known = {one.cause: one for one in reasons}
    cause = next((name for name in _TOLD if name in known), None)
    if cause is None:
        return None
    rows = curve.table.set_index("x")
    low, high = rows.loc[knee.load], rows.loc[knee.high]
    fields = {
        "load": show_load(curve, knee.load),
        "high": show_load(curve, knee.high),
        "rate_factor": f"{high['requests_per_s'] / low['requests_per_s']:.2f}",
        "life_factor": f"{high['e2el_mean_ms'] / low['e2el_mean_ms']:.2f}",
    }
    evidence = [text for name in _TOLD if name in known for text in known[name].evidence]
    # What a step does at both loads says more than either alone.
    steps = at_knee.steps if at_knee else None, past.steps if past else None
    if steps[0] is not None and steps[1] is not None:
        evidence.append(
            say(
                "finding.load.steps",
                load=fields["load"],
                high=fields["high"],
                low_ms=units.show_time(steps[0].step_ms * units.NS_PER_MS),
                high_ms=units.show_time(steps[1].step_ms * units.NS_PER_MS),
                low_tokens=f"{steps[0].tokens_per_step:,.0f}",
                high_tokens=f"{steps[1].tokens_per_step:,.0f}",
            )
        )
    gain = float(high["gain"])
    evidence.append(say("finding.load.knee", gain=units.show_share(gain), load=fields["load"], high=fields["high"]))
    if knee.repeats > 1:
        where = fields["load"]
        evidence.append(say("finding.load.repeats", agree=knee.agree, repeats=knee.repeats, load=where))
    seqs = int(knee.load) if curve.kind == "closed" else max(round(float(low["in_flight"])), 1)
    most = engine.settings.get("max_num_seqs")
    return Finding(
        id=f"load_{cause}",
        severity="warning" if cause in ("kv_cache", "client", "batch_limit") else "info",
        confidence=_confidence(len(known[cause].evidence), knee.agree, knee.repeats),
        title=say(f"finding.load.title.{cause}", **fields),
        impact={"value": float(high["e2el_mean_ms"] - low["e2el_mean_ms"]), "unit": "ms E2EL"},
        evidence=tuple(evidence),
        change=say(f"finding.load.change.{cause}", seqs=most if cause == "batch_limit" else seqs, **fields),
        check=_command(curve, engine, knee.high),
        run=curve.run,
        settings={"max_num_seqs": seqs} if cause == "kv_cache" else {},
    )


def show_load(curve: LoadCurve, x: float) -> str:
    """A load in words: `32 requests at once`, `8 requests/s`."""
    return f"{x:,.3g} requests at once" if curve.kind == "closed" else f"{x:,.3g} requests/s"


def _command(curve: LoadCurve, engine: Engine, x: float) -> str:
    """The load past the knee once more, with new prompts."""
    first = curve.points.iloc[0]
    known = pd.notna(first["input_len"]) and pd.notna(first["output_len"])
    held = float(curve.table.set_index("x").loc[x, "in_flight"])
    return bench_command(
        engine,
        seed=2,
        lengths=(int(first["input_len"]), int(first["output_len"])) if known else (512, 128),
        # Enough to turn over: two thirds of them lie between warm-up and drain.
        prompts=max(math.ceil(6 * held / 10) * 10, 100),
        load=f"--max-concurrency {x:g}" if curve.kind == "closed" else f"--request-rate {x:g}",
    )


def _confidence(evidence: int, agree: int, repeats: int) -> float:
    """More for a cause that two figures show, and for a knee that repeats agree on."""
    sure = 0.6 + 0.1 * (evidence > 1)
    return sure + (0.15 if repeats > 1 and agree == repeats else 0.0)
