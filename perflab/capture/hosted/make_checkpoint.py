"""Makes a quantized checkpoint with llm-compressor, in an environment that has it.

Run as `python make_checkpoint.py JOB.json`: `model` and `out` are folders, `scheme` is what becomes of the weights and
activations of linear layers (compressed-tensors' words), `algorithm` is rtn, gptq, awq or smoothquant-gptq, and
`calibration` a file with texts, absent for rtn. What was done is written to `facts`.
"""

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

_PACKAGES = ("llmcompressor", "compressed-tensors", "transformers", "torch")


def main(job: "dict[str, Any]") -> None:
    """Make one checkpoint; `out` must not exist yet."""
    begun = time.monotonic()
    import torch
    from llmcompressor import oneshot
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(job["seed"])
    trust = bool(job.get("trust_remote_code"))
    tokenizer = AutoTokenizer.from_pretrained(job["model"], trust_remote_code=trust)
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype="auto", trust_remote_code=trust)
    told: dict[str, int] = {}
    more: dict[str, Any] = {}
    if job["algorithm"] != "rtn":
        rows, told = calibration(job, tokenizer)
        more = {"dataset": rows, "num_calibration_samples": len(rows), "max_seq_length": job["length"]}
    loaded = time.monotonic()
    oneshot(model=model, recipe=recipe(job), tokenizer=tokenizer, **more)
    model.save_pretrained(job["out"], save_compressed=True)
    tokenizer.save_pretrained(job["out"])
    for file in Path(job["out"]).iterdir():
        file.chmod(0o644)
    facts = {
        "versions": {name: version(name) for name in _PACKAGES},
        "seconds": round(time.monotonic() - begun, 1),
        "seconds_loading": round(loaded - begun, 1),
        "calibration": told or None,
    }
    Path(job["facts"]).write_text(json.dumps(facts), encoding="utf-8")


def recipe(job: "dict[str, Any]") -> "list[Any]":
    """llm-compressor's modifiers."""
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier

    parts = {"ignore": job["ignore"], "config_groups": {"group_0": {"targets": ["Linear"], **job["scheme"]}}}
    if job["algorithm"] == "rtn":
        return [QuantizationModifier(**parts)]
    if job["algorithm"] == "gptq":
        return [GPTQModifier(**parts)]
    if job["algorithm"] == "smoothquant-gptq":
        from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier

        return [SmoothQuantModifier(smoothing_strength=0.8), GPTQModifier(**parts)]
    from llmcompressor.modifiers.transform.awq import AWQModifier

    leave_memory_unpinned()
    return [AWQModifier(duo_scaling="both"), QuantizationModifier(**parts)]


def leave_memory_unpinned() -> None:
    """On a machine without an accelerator: llm-compressor 0.14 pins memory for one all the same, and torch refuses."""
    import torch
    from llmcompressor.pipelines.cache import IntermediatesCache

    if not torch.accelerator.is_available():
        IntermediatesCache.pin_memory = lambda *_, **__: None


def calibration(job: "dict[str, Any]", tokenizer: Any) -> "tuple[Any, dict[str, int]]":
    """Rows of token ids: texts are joined and cut, so that each row is full."""
    from datasets import Dataset

    texts = json.loads(Path(job["calibration"]).read_text(encoding="utf-8"))
    rows: list[list[int]] = []
    row: list[int] = []
    for text in texts:
        row += tokenizer.encode(text)
        while len(row) >= job["length"] and len(rows) < job["samples"]:
            rows.append(row[: job["length"]])
            row = row[job["length"] :]
    if not rows:
        raise SystemExit(f"the calibration text has fewer than {job['length']} tokens")
    told = {"samples": len(rows), "length": job["length"], "tokens": sum(len(one) for one in rows)}
    return Dataset.from_dict({"input_ids": rows, "attention_mask": [[1] * len(one) for one in rows]}), told


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
