"""Put the measured runs of a quantization study into data/recorded/studies/, small enough for many runs.

    python data/pack_study.py [--home FOLDER] STUDY NAME [NOTE ...]

A run of a study keeps its manifest, log, model config, clock and each point's result as the client summed it up. Times
of single requests, step records, telemetry and scrapes of /metrics stay out: the study's table needs none of them, and
they are nine tenths of its size. Traces are made small by `slim_trace.py` and lose their host operators, which name
layers and say nothing of how long kernels take. Every run says so in its notes. Accuracy is copied as it is.
"""

import argparse
import json
import lzma
import shutil
from pathlib import Path
from typing import Any

from pack_run import _homeless, _packed
from slim_trace import PRESET, without_operators

from perflab.read.files import read_text
from perflab.runs import MANIFEST, is_run, open_run

LEFT_OUT = ("step_records", "telemetry", "metrics_before", "metrics_after", "samples", "printed", "tables")
PER_REQUEST = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")
NOTE = (
    "Packed as part of a study: times of single requests, step records, telemetry, scrapes of /metrics and the host's "
    "operators in traces were left out."
)


def main(source: Path, name: str, notes: list[str], home: str | None = None) -> None:
    """Copy what a study's table is told from; runs that are packed already go."""
    target = Path(__file__).resolve().parent / "recorded" / "studies" / name
    for file in ("study.json", "study.yaml"):
        if (source / file).is_file():
            target.mkdir(parents=True, exist_ok=True)
            (target / file).write_text(_homeless((source / file).read_text(encoding="utf-8"), home), encoding="utf-8")
    shutil.rmtree(target / "speed", ignore_errors=True)
    for run in sorted((source / "speed").glob("*")):
        if is_run(run):
            _pack(run, target / "speed" / run.name, notes, home)
    if (source / "accuracy").is_dir():
        shutil.copytree(
            source / "accuracy", target / "accuracy", dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*")
        )
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"{name}: {size / 1e6:.2f} MB")


def _pack(source: Path, target: Path, notes: list[str], home: str | None) -> None:
    target.mkdir(parents=True, exist_ok=True)
    manifest = _packed(_without(json.loads((source / MANIFEST).read_text(encoding="utf-8"))), source, target, home)
    assert isinstance(manifest, dict)
    manifest["notes"] = [*notes, *manifest.get("notes", []), NOTE]
    for file in target.glob("bench/*.xz"):
        result = json.loads(read_text(file)[0])
        rest = {key: value for key, value in result.items() if key not in PER_REQUEST}
        file.write_bytes(lzma.compress(json.dumps(rest).encode(), preset=PRESET))
    for file in target.glob("profile/**/*.json.xz"):
        file.write_bytes(lzma.compress(without_operators(read_text(file)[0]).encode(), preset=PRESET))
    (target / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    open_run(target)


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(part) for key, part in value.items() if key not in LEFT_OUT}
    return [_without(part) for part in value] if isinstance(value, list) else value


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path)
    parser.add_argument("name")
    parser.add_argument("notes", nargs="*")
    parser.add_argument("--home")
    args = parser.parse_args()
    main(args.study, args.name, args.notes, args.home)
