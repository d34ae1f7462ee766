"""Put a captured run into data/recorded/, text and traces xz-compressed.

    python data/pack_run.py [--without PASS] [--home FOLDER] RUN NAME [NOTE ...]

What the client printed and the profiler's tables stay out, since the results and traces say the same. So do the
generated texts; times of single requests keep whole nanoseconds, which is what perflab reads of them; traces are made
small by `slim_trace.py`. A profiling pass named by --without stays out too, and what came of the run is then said of
the rest. Paths below --home, a folder of the machine that made the run, begin with ~ instead.
"""

import argparse
import json
import lzma
import shutil
from pathlib import Path
from typing import Any

from slim_trace import PRESET, slim

from perflab.read.files import read_text
from perflab.runs import MANIFEST, open_run

LEFT_OUT = ("printed", "tables")


def main(source: Path, name: str, notes: list[str], without: str | None = None, home: str | None = None) -> None:
    """Copy every file the manifest names, compressed, and rename it there."""
    run = open_run(source)
    target = Path(__file__).resolve().parent / "recorded" / name
    shutil.rmtree(target, ignore_errors=True)
    whole = json.loads((source / MANIFEST).read_text())
    manifest = _packed(_rest(whole, without) if without else whole, run.path, target, home)
    manifest["notes"] = [*notes, *manifest.get("notes", [])]
    (target / MANIFEST).write_text(json.dumps(manifest, indent=1))
    open_run(target)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    print(f"{name}: {size / 1e6:.2f} MB")


def _rest(manifest: dict[str, Any], without: str) -> dict[str, Any]:
    """The manifest without one profiling pass; complete if all that is left is."""
    kept = [profile for profile in manifest["profiles"] if profile["id"] != without]
    outcomes = {part["status"] for part in [*manifest["points"], *kept]}
    rest = manifest | {"profiles": kept}
    if outcomes <= {"complete", "skipped"}:
        rest |= {"status": "complete", "reason": None}
    return rest


def _packed(value: object, source: Path, target: Path, home: str | None) -> object:
    if isinstance(value, dict):
        return {key: _packed(part, source, target, home) for key, part in value.items() if key not in LEFT_OUT}
    if isinstance(value, list):
        return [_packed(part, source, target, home) for part in value]
    if isinstance(value, str) and value and len(value) < 200 and (source / value).is_file():
        text = _homeless(read_text(source / value)[0], home)
        packed = target / f"{value.removesuffix('.gz')}.xz"
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.write_bytes(lzma.compress(_slim(value, text).encode(), preset=PRESET))
        return packed.relative_to(target).as_posix()
    return _homeless(value, home) if isinstance(value, str) else value


def _homeless(text: str, home: str | None) -> str:
    return text.replace(f"{home.rstrip('/')}/", "~/") if home else text


def _slim(name: str, text: str) -> str:
    if ".pt.trace.json" in name:
        return slim(text)
    if not (name.startswith("bench/") and name.endswith(".json")):
        return text
    result = json.loads(text)
    result.pop("generated_texts", None)
    for key in ("ttfts", "itls", "latencies", "queue_times", "start_times"):
        if key in result:
            result[key] = _whole_nanoseconds(result[key])
    return json.dumps(result)


def _whole_nanoseconds(value: Any) -> Any:
    return [_whole_nanoseconds(part) for part in value] if isinstance(value, list) else round(value, 9)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("notes", nargs="*")
    parser.add_argument("--without")
    parser.add_argument("--home")
    args = parser.parse_args()
    main(args.run, args.name, args.notes, args.without, args.home)
