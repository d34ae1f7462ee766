"""`accuracy.json`: what a variant loses on a text, how that is known, and what a reader has to know beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perflab.analysis.quantization.accuracy import CONFIDENCE, RESAMPLES, SEED, Loss, mean_estimate
from perflab.experiment.study import Study, Variant
from perflab.messages import say
from perflab.runs import Hardware
from perflab.tasks.quantize.texts import Text

SCHEMA = 1


@dataclass(frozen=True)
class Judged:
    """All that `accuracy.json` is made of."""

    study: Study
    variant: Variant
    name: str
    text: Text
    scores: Mapping[str, np.ndarray]
    loss: Loss
    control: Loss
    executor: str
    ran: Mapping[str, Any]
    kernels: Sequence[str]
    notes: Sequence[str]
    args: Mapping[str, Any]
    flavour: str
    machine: Hardware


def judged(facts: Judged) -> str:
    """The verdict as a sentence."""
    found = facts.loss
    if facts.name == facts.study.baseline.name:
        return say("quantize_accuracy.verdict.baseline", perplexity=f"{found.perplexity.value:.2f}")
    fields: dict[str, Any] = {
        "change": _percent(found.ratio.value - 1),
        "low": "" if found.ratio.low is None else _percent(found.ratio.low - 1),
        "high": "" if found.ratio.high is None else _percent(found.ratio.high - 1),
        "margin": f"{found.margin * 100:g} %",
        "detectable": "" if found.detectable is None else f"{found.detectable * 100:.2g} %",
        "tokens": f"{found.tokens:,}",
        "documents": found.documents,
    }
    return say(f"quantize_accuracy.verdict.{found.word}", **fields)


def record(facts: Judged, sentence: str) -> dict[str, Any]:
    """The document, without what tells who made it when."""
    names = [one.name for one in facts.text.documents]
    used = sorted({int(one) for one in facts.scores["document"]})
    found = facts.loss.to_json()
    found["verdict"] |= {"sentence": sentence}
    return {
        "schema": SCHEMA,
        "study": facts.study.name,
        "variant": facts.name,
        "format": facts.variant.format.name,
        "label": facts.variant.label,
        "model": {"name": facts.study.model.served_name, "kind": facts.study.model.kind, "id": facts.study.model.name},
        "executed_by": facts.executor,
        "executed": executed(facts),
        "kernels": list(facts.kernels),
        "engine": {
            "vllm": facts.ran.get("vllm"),
            "transformers": facts.ran.get("transformers"),
            "flavour": facts.flavour,
            "device": facts.machine.gpus[0].name
            if facts.flavour == "gpu" and facts.machine.gpus
            else facts.machine.cpu,
            "args": dict(facts.args),
            "logits": str(facts.ran.get("logits", "")).removeprefix("torch."),
            "seconds": facts.ran.get("seconds"),
            "largest_difference_to_vllm_logprobs": facts.ran.get("largest_difference_to_vllm"),
        },
        "text": {
            "what": facts.text.what,
            "sha256": facts.text.sha256,
            "documents": facts.loss.documents,
            "tokens": facts.loss.tokens,
            "window": facts.study.accuracy.window if facts.study.accuracy else None,
            "document_names": [names[one] for one in used],
        },
        **found,
        "kl_support": "full vocabulary" if not _top_k(facts) else f"top {_top_k(facts)} (lower bound)",
        "kl_is_lower_bound": bool(_top_k(facts)),
        "decoding": decoding(facts),
        "control": {
            "what": say("quantize_accuracy.control_what"),
            "tokens": facts.control.tokens,
            "documents": facts.control.documents,
            "perplexity_ratio": facts.control.ratio.to_json(),
            "agreement": facts.control.agreement.to_json(),
            "kl": facts.control.kl.to_json(),
        },
        "method": say(
            "quantize_accuracy.method", resamples=f"{RESAMPLES:,}", seed=SEED, confidence=f"{CONFIDENCE * 100:g} %"
        ),
        "notes": notes(facts),
    }


def executed(facts: Judged) -> str:
    """How the numbers came about, in words."""
    if facts.executor == "transformers":
        return say("quantize_accuracy.executed_decompressed", version=facts.ran.get("transformers"))
    device = (
        facts.machine.gpus[0].name if facts.flavour == "gpu" and facts.machine.gpus else say("quantize_accuracy.cpu")
    )
    return say("quantize_accuracy.executed_vllm", version=facts.ran.get("vllm"), device=device)


def decoding(facts: Judged) -> dict[str, Any] | None:
    """Decoding steps after cached prefixes, where they were compared."""
    if "decode_kl" not in facts.scores:
        return None
    frame = pd.DataFrame({
        name: facts.scores[f"decode_{name}"] for name in ("document", "prefix", "cached", "kl", "same")
    })  # fmt: skip
    return {
        "what": say("quantize_accuracy.decoding_what"),
        "steps": len(frame),
        "prefixes": sorted({int(one) for one in frame["prefix"]}),
        "cached_share": float(frame["cached"].sum() / frame["prefix"].sum()),
        "kl": mean_estimate(frame["kl"], frame["document"]).to_json(),
        "agreement": mean_estimate(frame["same"].astype(float), frame["document"]).to_json(),
    }


def notes(facts: Judged) -> list[str]:
    """What a reader has to know."""
    found = [say("quantize_accuracy.dequantized", note=note) for note in facts.notes]
    if facts.ran.get("decode_failed"):
        found.append(say("quantize_accuracy.decode_failed", why=facts.ran["decode_failed"]))
    if facts.study.accuracy is not None and facts.study.accuracy.text.english:
        found.append(say("quantize_accuracy.may_be_known"))
    if str(facts.ran.get("logits", "")).endswith("bfloat16"):
        found.append(say("quantize_accuracy.rounded_logits"))
    return found


def _top_k(facts: Judged) -> int | None:
    return facts.study.accuracy.top_k if facts.study.accuracy else None


def _percent(share: float) -> str:
    return f"{share * 100:+.2f} %".replace("-", "−")
