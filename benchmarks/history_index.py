"""How fast is the index of `perflab history`? python benchmarks/history_index.py [RUNS]

Writes synthetic run directories, then reads them without an index, with one, and after one run has changed.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from small_history import write_run

from perflab.tasks.history import history
from perflab.tasks.history_index import index_of


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_CACHE_HOME"] = f"{name}/cache"
        folder = Path(name) / "runs"
        random.seed(1)
        for n in range(count):
            write_run(
                folder / f"{n // 100:03d}" / f"run-{n:05d}", n / 24, random.gauss(400 if n < count // 2 else 380, 4),
                version="0.25.1" if n < count // 2 else "0.32.0", num_gpu_blocks=57_000 + n % 500, repeats=3,
            )  # fmt: skip
        _timed(f"first time ({count} runs, 3 points each)", lambda: index_of(folder))
        _timed("again", lambda: index_of(folder))
        changed = folder / "000" / "run-00007" / "manifest.json"
        changed.write_bytes(changed.read_bytes() + b"\n")
        _timed("after one run changed", lambda: index_of(folder))
        _timed("whole report", lambda: history(folder))
        kept = next((Path(name) / "cache" / "perflab" / "history").glob("*.json"))
        print(f"{'size of the index':40} {kept.stat().st_size / 1e6:8.2f} MB")


def _timed(what: str, do: object) -> None:
    started = time.perf_counter()
    do()  # type: ignore[operator]
    print(f"{what:40} {time.perf_counter() - started:8.2f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3000)
