"""Traces of a profiler that writes to a folder of somebody else's."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from perflab.capture.torch_profile import is_whole

_LOOK_S = 0.3


@contextlib.contextmanager
def arriving_traces(source: Path, incoming: Path) -> Iterator[None]:
    """Within: what a server's profiler writes to `source` from now on is copied to `incoming`, once it is whole.

    The folder is somebody else's: what was there stays out, and nothing is moved.
    """
    known = {file for file in source.rglob("*") if file.is_file()}
    done = threading.Event()

    def copy() -> None:
        while not done.wait(_LOOK_S):
            new = [file for file in source.rglob("*") if file.is_file() and file not in known]
            if not all(is_whole(file) for file in new if file.name.endswith((".json", ".json.gz"))):
                continue
            for file in new:
                with contextlib.suppress(OSError):
                    # A copy is there whole or not at all.
                    part = incoming.parent / f"{incoming.name}.part"
                    shutil.copyfile(file, part)
                    part.replace(incoming / file.name)
                    known.add(file)

    watcher = threading.Thread(target=copy, name="arriving-traces", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join(timeout=30.0)
