"""Quantization that was asked for and that no kernel shows."""

from __future__ import annotations

import pandas as pd

from perflab import units
from perflab.analysis.finding import Finding, bench_command
from perflab.analysis.kernel_names import short_kernel_name
from perflab.analysis.rules.facts import PassFacts
from perflab.knowledge.quantized_kernels import quantized_kernels
from perflab.messages import say

_MATMULS = ("gemm", "moe")


def quantization_without_kernels(facts: PassFacts) -> Finding | None:
    """The settings, or the model's config, name a quantization; the matmul kernels do not compute with it."""
    asked = _asked(facts)
    pattern = quantized_kernels(asked) if asked else None
    if asked is None or pattern is None:
        return None
    tables = [rank.kernels for rank in facts.ranks]
    work = pd.concat([t[t["category"].isin(_MATMULS) & (t["kind"] == "kernel")][["name", "dur_ns"]] for t in tables])
    if work.empty:
        return None
    totals = work.groupby("name", observed=True)["dur_ns"].sum().sort_values(ascending=False)
    if any(pattern.search(str(name)) for name in totals.index):
        return None
    shares = totals / totals.sum()
    largest = ", ".join(
        f"{short_kernel_name(str(name))} ({units.show_share(share)})" for name, share in shares[:3].items()
    )
    return Finding(
        id="quantization_without_kernels",
        severity="critical",
        confidence=0.85,
        title=say("finding.quantized.title", method=asked),
        impact=None,
        evidence=(
            say("finding.quantized.asked", method=asked),
            say("finding.quantized.largest", names=largest),
            say("finding.quantized.cost"),
        ),
        change=say("finding.quantized.change"),
        check=bench_command(facts.engine),
        run=facts.run,
    )


def _asked(facts: PassFacts) -> str | None:
    setting = str(facts.engine.settings.get("quantization") or "").lower()
    several = ("compressed", "modelopt", "quark")  # these hold weights of many kinds
    if setting not in ("", "none", "null", "auto") and not any(word in setting for word in several):
        return setting
    shape = next((rank.roofline.shape for rank in facts.ranks if rank.roofline and rank.roofline.shape), None)
    found = shape.quantization if shape else None
    if found is None:
        return None
    if found.activations:
        return found.activations
    return found.method if quantized_kernels(found.method) else f"w{found.weight_bits}a16"
