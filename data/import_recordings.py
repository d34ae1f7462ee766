"""Make data/recorded/ from a folder of raw recordings: python data/import_recordings.py RAW SHAPES [OUT]

RAW holds one folder a run (bench/, trace/, metrics.txt, server.log, run.json), SHAPES one folder a model with its
config.json, named as run.json names the model. Warm-up results are left out: they are no measurement. Everything is
stored xz-compressed; see data/README.md for what the runs are.
"""

import json
import shutil
import sys
from pathlib import Path

from slim_trace import main as slim_traces

from perflab.tasks.imports import import_files

TITLES = {
    "llama3-8b-bf16": "Llama-3-8B shape, BF16, 1 x H200",
    "llama3-8b-fp8": "Llama-3-8B shape, FP8 online, 1 x H200",
    "llama3-8b-awq": "Llama-3-8B shape, AWQ 4-bit, 1 x H200",
    "llama3-8b-eager": "Llama-3-8B shape, BF16, enforce_eager, 1 x H200",
    "llama3-8b-tp2": "Llama-3-8B shape, BF16, tensor parallel 2, 2 x H200",
    "llama3-70b-bf16-tp2": "Llama-3-70B shape, BF16, tensor parallel 2, 2 x H200",
    "llama3-70b-awq-tp2": "Llama-3-70B shape, AWQ 4-bit, tensor parallel 2, 2 x H200",
}
RANDOM_WEIGHTS = (
    "The weights are random (--load-format dummy): speed and memory are real, text and accuracy mean nothing."
)


RECORDED = Path(__file__).resolve().parent / "recorded"


def main(raw: Path, shapes: Path, out: Path = RECORDED) -> None:
    """Import every run of `raw` that has a title here, replacing what `out` holds of it."""
    for name, title in TITLES.items():
        source, target = raw / name, out / name
        about = json.loads((source / "run.json").read_text())
        shutil.rmtree(target, ignore_errors=True)
        files = [path for path in sorted((source / "bench").glob("*.json")) if path.stem != "warm"]
        files += [path for part in ("trace", "metrics.txt", "server.log") if (path := source / part).exists()]
        files.append(shapes / about["model"] / "config.json")
        notes = [
            RANDOM_WEIGHTS,
            f"{about['gpu']}, driver {about['driver']}, torch {about['torch']}.",
            "One server, one repeat of each load, prefix caching off, random prompts, seed 0.",
        ]
        run = import_files(files, target, title=title, notes=notes, pack=True)
        slim_traces(sorted(target.rglob("*.pt.trace.json.xz")))
        size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        print(f"{name}: {len(run.manifest.points)} points, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
