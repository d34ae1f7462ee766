"""Scores text with the engine that serves, in the engine's Python.

Run as `python score_tokens.py JOB.json`. The job says the model, the engine's arguments, the text, and whether to write
a reference of next-token distributions or to compare with one; see `perflab/capture/scoring.py`. One prompt runs at a
time, so that rows of logits are known to be its own; what vLLM says of each prompt token is checked against them.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

# The engine in this very process where one worker does: fewer processes, and the worker's extension is at hand.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

import numpy as np
from perflab_logits import windows_of

TOLERANCE = 2e-3


def write_whole(path: "str | Path", text: str) -> None:
    """Write a file so that a reader sees all of it or none."""
    part = Path(f"{path}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def main(job: "dict[str, Any]") -> None:
    """Do one job."""
    begun = time.monotonic()
    from vllm import LLM, SamplingParams
    from vllm import __version__ as version

    llm = LLM(model=job["model"], worker_extension_cls="perflab_scoring_worker.ScoringWorker", **job["args"])
    loaded = time.monotonic()
    windows = the_windows(job, llm.get_tokenizer())[: job["limit"]]
    watch(llm, job, "")
    params = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False)
    columns: dict[str, list[Any]] = {name: [] for name in ("document", "position", "token", "nll", "hit", "kl", "same")}
    worst, dtype = 0.0, None
    for done, (document, position, ids) in enumerate(windows):
        output = llm.generate([{"prompt_token_ids": ids}], params, use_tqdm=False)[0]
        found = first(llm.collective_rpc("perflab_prompt", args=(ids[1:],)))
        said = [-entry[token].logprob for entry, token in zip(output.prompt_logprobs[1:], ids[1:], strict=True)]
        worst = max(worst, float(np.abs(np.subtract(said, found["nll"])).max()))
        if worst > TOLERANCE:
            raise RuntimeError(f"vLLM's own logprobs and the logits that were seen differ by {worst:.3g}")
        dtype = found.pop("dtype")
        columns["document"] += [document] * (len(ids) - 1)
        columns["position"] += range(position + 1, position + len(ids))
        columns["token"] += ids[1:]
        for name, values in found.items():
            columns[name] += values
        write_whole(job["progress"], json.dumps({"done": done + 1, "of": len(windows)}))
    llm.collective_rpc("perflab_close")
    scored = time.monotonic()
    decoded: dict[str, list[Any]] = {}
    trouble = None
    try:
        decoded = decode(llm, job, windows) if job.get("decode") else {}
    except Exception as error:
        # What prompts told is not lost where an engine cannot be held to an answer.
        trouble = f"{type(error).__name__}: {error}".splitlines()[0]
    arrays: dict[str, Any] = {name: np.asarray(values) for name, values in columns.items() if values}
    arrays |= {f"decode_{name}": np.asarray(values) for name, values in decoded.items() if len(values)}
    part = Path(f"{job['out']}.part.npz")
    np.savez_compressed(part, **arrays)
    facts = {
        "vllm": version,
        "logits": dtype,
        "largest_difference_to_vllm": worst,
        "decode_failed": trouble,
        "seconds": {"load": loaded - begun, "prompts": scored - loaded, "decode": time.monotonic() - scored},
    }
    write_whole(f"{job['out']}.json", json.dumps(facts))
    part.replace(job["out"])


def first(answers: "list[Any]") -> Any:
    """The answer of the worker that has the logits."""
    return next(answer for answer in answers if answer is not None)


def watch(llm: Any, job: "dict[str, Any]", suffix: str) -> None:
    """Have the workers look at logits."""
    llm.collective_rpc("perflab_watch", args=(job["role"], job["reference"] + suffix, job.get("top_k")))
    llm.collective_rpc("perflab_forget")


def the_windows(job: "dict[str, Any]", tokenizer: Any) -> "list[Any]":
    """The windows to score: those that an earlier job cut, or cut now."""
    path = Path(job["windows"])
    if path.is_file():
        kept: list[Any] = json.loads(path.read_text(encoding="utf-8"))
        return kept
    texts = json.loads(Path(job["documents"]).read_text(encoding="utf-8"))
    lead = tokenizer.encode("")
    lead = lead[:1] if lead and lead[0] == tokenizer.bos_token_id else []
    found: list[Any] = windows_of(
        texts, lambda text: tokenizer.encode(text, add_special_tokens=False), lead,
        window=job["window"], tokens=job["tokens"],
    )  # fmt: skip
    if not found:
        raise RuntimeError("no document is long enough to be scored")
    write_whole(path, json.dumps(found))
    return found


def decode(llm: Any, job: "dict[str, Any]", windows: "list[Any]") -> "dict[str, list[Any]]":
    """Next-token distributions of decoding steps after growing prefixes that are in the cache.

    Each request holds a prefix and is made to answer with the text's own next token; the step after it, one token that
    reads the KV cache, is what is compared.
    """
    from vllm import SamplingParams

    prefixes = sorted(job["decode"]["prefixes"])
    taken = [one for one in windows if one[1] == 0 and len(one[2]) >= prefixes[-1] + 2][: job["decode"]["documents"]]
    found: dict[str, list[Any]] = {name: [] for name in ("document", "prefix", "cached", "nll", "hit", "kl", "same")}
    if not taken:
        return found
    watch(llm, job, "-decode")
    for document, _, ids in taken:
        for length in prefixes:
            params = SamplingParams(
                max_tokens=2, temperature=0.0, allowed_token_ids=[ids[length]], ignore_eos=True, detokenize=False
            )
            output = llm.generate([{"prompt_token_ids": ids[:length]}], params, use_tqdm=False)[0]
            if output.outputs[0].token_ids[0] != ids[length]:
                raise RuntimeError("the engine did not answer with the token it was held to")
            scored = first(llm.collective_rpc("perflab_decoded", args=([ids[length + 1]],)))
            scored.pop("dtype")
            found["document"].append(document)
            found["prefix"].append(length)
            found["cached"].append(output.num_cached_tokens or 0)
            for name, values in scored.items():
                found[name] += values
    llm.collective_rpc("perflab_close")
    return found


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
