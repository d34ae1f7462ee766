"""Scores text where vLLM's engine cannot execute a format: weights decompressed, computed by transformers.

Run as `python score_decompressed.py JOB.json` with the job of `score_tokens.py`. Weights have the values that the
checkpoint's format can hold; activations and the KV cache are those of the unquantized model.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from perflab_logits import Reader, Writer, divergence, nll_and_top
from score_tokens import the_windows, write_whole


def main(job: "dict[str, Any]") -> None:
    """Do one job; there are no decoding steps."""
    begun = time.monotonic()
    import transformers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    config = AutoConfig.from_pretrained(job["model"])
    more = {}
    if getattr(config, "quantization_config", None):
        from transformers import CompressedTensorsConfig

        more["quantization_config"] = CompressedTensorsConfig(run_compressed=False)
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype="auto", **more).eval()
    simulated = unquantized_activations(model)
    windows = the_windows(job, AutoTokenizer.from_pretrained(job["model"]))[: job["limit"]]
    writer = Writer(job["reference"], job.get("top_k")) if job["role"] == "write" else None
    reader = None if writer else Reader(job["reference"])
    loaded = time.monotonic()
    columns: dict[str, list[Any]] = {name: [] for name in ("document", "position", "token", "nll", "hit", "kl", "same")}
    start = 0
    for done, (document, position, ids) in enumerate(windows):
        with torch.inference_mode():
            logits = model(torch.tensor([ids])).logits[0, :-1]
        wanted = torch.tensor(ids[1:])
        nll, top = nll_and_top(logits, wanted)
        if writer:
            writer.add(logits)
        elif reader:
            kl, same = divergence(logits, reader, start)
            columns["kl"] += kl.tolist()
            columns["same"] += same.tolist()
        start += len(wanted)
        columns["document"] += [document] * len(wanted)
        columns["position"] += range(position + 1, position + len(ids))
        columns["token"] += ids[1:]
        columns["nll"] += nll.tolist()
        columns["hit"] += (top == wanted).tolist()
        write_whole(job["progress"], json.dumps({"done": done + 1, "of": len(windows)}))
    if writer:
        writer.close()
    part = Path(f"{job['out']}.part.npz")
    arrays: dict[str, Any] = {name: np.asarray(values) for name, values in columns.items() if values}
    np.savez_compressed(part, **arrays)
    facts = {
        "transformers": transformers.__version__,
        "logits": str(logits.dtype),
        "decompressed_layers": simulated,
        "seconds": {"load": loaded - begun, "prompts": time.monotonic() - loaded},
    }
    write_whole(f"{job['out']}.json", json.dumps(facts))
    part.replace(job["out"])


def unquantized_activations(model: Any) -> int:
    """Have decompressed layers compute as plain ones do; returns how many there are."""
    count = 0
    for module in model.modules():
        if getattr(module, "quantization_scheme", None) is not None:
            module.forward = torch.nn.Linear.forward.__get__(module)
            count += 1
    return count


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
