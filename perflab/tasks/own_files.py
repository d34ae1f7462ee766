"""A user's own files: what lies near, what each is, and a run directory made of them beside the originals."""

from __future__ import annotations

import difflib
import glob
import heapq
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perflab import places, units
from perflab.errors import InputError
from perflab.messages import say
from perflab.read.files import sniff
from perflab.read.kinds import NAMES
from perflab.read.results import READERS
from perflab.runs import MANIFEST, Run, is_run, open_run
from perflab.tasks.imports import import_files
from perflab.tasks.imports.copying import safe_name, shown
from perflab.tasks.imports.sorting import SKIPPED_FOLDERS, files_of

TRACES = frozenset(("kineto", "nsys"))
_OF_A_RUN = TRACES | frozenset(READERS) | frozenset(("server_log", "metrics", "manifest"))
_HELPFUL = frozenset(("kineto_frontend", "profiler_table", "telemetry", "model_config", "samples"))
_ENDINGS = (".json", ".jsonl", ".gz", ".xz", ".sqlite", ".log", ".txt", ".csv", ".nsys-rep", ".prom", ".yaml")
_NOT_ENTERED = (*SKIPPED_FOLDERS, "site-packages", "venv", ".notebooks")
_MOST_LOOKED_AT, _MOST_FOUND = 400, 3000


@dataclass(frozen=True)
class Seen:
    """A file and what it is. `kind` None: not known; `why` is then the reason. `useful`: it tells of a run of vLLM."""

    path: Path
    kind: str | None
    size: int
    useful: bool
    why: str = ""

    @property
    def what(self) -> str:
        """What it is, in words."""
        return NAMES.get(self.kind or "", "") or self.why or say("import.unknown")


@dataclass(frozen=True)
class Looked:
    """What the given paths hold. `left_out`: files beyond the number that is looked at."""

    paths: tuple[Path, ...]
    seen: tuple[Seen, ...]
    run: Path | None = None
    left_out: int = 0

    @property
    def useful(self) -> bool:
        """Whether a run directory can be made of them, or they are one."""
        return self.run is not None or any(one.useful for one in self.seen)

    def counts(self) -> list[tuple[str, int, int]]:
        """Kinds in words, how many files, their bytes; the most useful first."""
        order = sorted(self.seen, key=lambda one: (not one.useful, one.kind is None))
        number, size = Counter(one.what for one in order), Counter[str]()
        for one in order:
            size[one.what] += one.size
        return [(what, n, size[what]) for what, n in number.items()]


@dataclass(frozen=True)
class Near:
    """Something near that can be broken down or measured by: a file, a folder of traces, or a run directory."""

    path: Path
    what: str
    size: int
    changed: float
    is_trace: bool = False

    @property
    def label(self) -> str:
        """`trace.json.gz · a torch profiler (Kineto) trace · 2.3 MiB`."""
        size = f" · {units.show_bytes(self.size)}" if self.size else ""
        return f"{short(self.path)} · {self.what}{size}"


def short(path: Path) -> str:
    """A path as a reader knows it: from where they work, the current directory, or home."""
    for base, mark in ((places.work(), ""), (Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base) and len(str(base)) > 1 and path != base:
            return os.fsencode(f"{mark}{path.relative_to(base)}").decode("utf-8", errors="backslashreplace")
    return os.fsencode(str(path)).decode("utf-8", errors="backslashreplace")


def named_paths(text: str) -> list[Path]:
    """The paths a user typed or pasted: quotes, `file://`, `~`, `*` and several (a line or `;` each) are understood.

    Raises
    ------
    InputError
        When nothing is there; a name that is nearly the same is offered.
    """
    found: list[Path] = []
    for part in re.split(r"[\n;]+", text):
        name = part.strip().strip("'\"").removeprefix("file://")
        if not name:
            continue
        path = Path(name).expanduser()
        path = path if path.exists() or path.is_absolute() else _from_work(path)
        if path.exists():
            found.append(path)
        elif glob.has_magic(str(path)) and (matched := _matched(path)):
            found += matched
        else:
            raise InputError(say("own_files.missing", near=_near_name(path)), path=name)
    return found


def completions(text: str, most: int = 40) -> list[str]:
    """Paths that begin with `text`, folders with a slash; files that could be of a run, and folders."""
    base = Path(text).expanduser()
    folder, begin = (base, "") if text.endswith("/") else (base.parent, base.name)
    head = text[: len(text) - len(begin)]
    try:
        entries = sorted(os.scandir(folder if str(folder) else "."), key=lambda entry: (not entry.is_dir(), entry.name))
    except OSError:
        return []
    fitting = [e for e in entries if e.name.startswith(begin) and (begin.startswith(".") or e.name[0] != ".")]
    shown_ones = [e for e in fitting if e.is_dir() or e.name.endswith(_ENDINGS)]
    return [f"{head}{entry.name}{'/' if entry.is_dir() else ''}" for entry in shown_ones[:most]]


def look_at(paths: Sequence[Path]) -> Looked:
    """What files and folders are, by their first bytes; nothing is read whole.

    Raises
    ------
    InputError
        When a path does not exist.
    """
    if len(paths) == 1 and paths[0].name == MANIFEST and is_run(paths[0].parent):
        paths = [paths[0].parent]
    if len(paths) == 1 and paths[0].is_dir() and is_run(paths[0]):
        open_run(paths[0])
        return Looked(tuple(paths), (), run=paths[0])
    files = files_of(paths)
    seen = tuple(_seen(path) for path in files[:_MOST_LOOKED_AT])
    return Looked(tuple(paths), seen, left_out=max(len(files) - _MOST_LOOKED_AT, 0))


def nearby(folders: Sequence[Path], *, most: int = 40, patience_s: float = 3.0, depth: int = 4) -> list[Near]:
    """What lies below folders and tells of a run of vLLM, as far as can be found in `patience_s` for each of them.

    In the order of the folders, in each the newest first. Several traces in one folder are offered together too: one
    pass leaves a trace a rank.
    """
    found: dict[Path, Near] = {}
    done: set[Path] = set()
    for folder in folders:
        end = time.monotonic() + patience_s
        for changed, path in _newest(folder, depth, time.monotonic() + patience_s / 2, done):
            if time.monotonic() > end or len(found) >= most:
                break
            if (near := _near(path, changed)) is not None:
                found.setdefault(near.path, near)
    return _with_folders(list(found.values()))


def _near(path: Path, changed: float) -> Near | None:
    if path.name == MANIFEST:
        return Near(path.parent, say("own_files.run"), 0, changed) if is_run(path.parent) else None
    one = _seen(path)
    if not one.useful and one.kind != "nsys_report":
        return None
    return Near(path, one.what, one.size, changed, one.kind in TRACES)


def _with_folders(found: list[Near]) -> list[Near]:
    """The same with folders that hold several traces, each before the first of its traces."""
    together: dict[Path, list[Near]] = {}
    for one in found:
        if one.is_trace:
            together.setdefault(one.path.parent, []).append(one)
    out: list[Near] = []
    for one in found:
        traces = together.get(one.path.parent, []) if one.is_trace else []
        if len(traces) > 1 and one is traces[0]:
            size, changed = sum(trace.size for trace in traces), max(trace.changed for trace in traces)
            out.append(Near(one.path.parent, say("own_files.folder", n=len(traces)), size, changed))
        out.append(one)
    return out


def take_in(paths: Sequence[Path], into: Path, name: str | None = None) -> Run:
    """Make a run directory in the folder `into` of files, which stay as they are; nothing there is replaced.

    Parameters
    ----------
    name
        Of the run directory (default: that of the first path); a number is added where there is one already.

    Raises
    ------
    InputError
        When nothing given tells of a run of vLLM, or a path does not exist. Nothing is left behind then.
    """
    wanted = safe_name(name.strip()) if name and name.strip() else run_name_for(paths)
    try:
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".importing-", dir=into) as scratch:
            target = free_folder(into, wanted)
            # Made elsewhere and moved when it is whole: an import that fails or is stopped leaves nothing.
            import_files(paths, Path(scratch) / target.name, title=target.name)
            (Path(scratch) / target.name).rename(target)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", path=into) from error
    return open_run(target)


def run_name_for(paths: Sequence[Path]) -> str:
    """What a run of these files may be called: the first file's name without endings, or the folder's."""
    if not paths:
        return "run"
    first = paths[0].resolve()
    name = shown(first) if first.is_dir() or len(paths) == 1 else shown(first.parent)
    if first.is_file() and len(paths) == 1:
        name = re.sub(r"(\.(pt|trace|json|jsonl|gz|xz|sqlite|log|txt|csv))+$", "", name)
    name = re.sub(r"[^\w.+-]+", "-", name).strip("-.")
    return safe_name(name[:80] or "run")


def free_folder(into: Path, name: str, ending: str = "") -> Path:
    """`into/name` (with an ending, of a file), or the same with the first number that is free."""
    tries = (into / f"{name}{'' if number == 1 else f'-{number}'}{ending}" for number in range(1, 10**6))
    return next(path for path in tries if not path.exists())


def _seen(path: Path) -> Seen:
    try:
        size, kind = path.stat().st_size, sniff(path)
    except InputError as error:
        return Seen(path, None, path.stat().st_size if path.exists() else 0, False, error.what)
    except OSError as error:
        return Seen(path, None, 0, False, error.strerror or str(error))
    if size == 0:
        return Seen(path, None, 0, False, say("own_files.empty"))
    if kind == "nsys_report":
        return Seen(path, kind, size, False)
    return Seen(path, kind, size, kind in _OF_A_RUN and kind not in _HELPFUL)


def _newest(top: Path, depth: int, end: float, done: set[Path]) -> list[tuple[float, Path]]:
    """Files that could be of a run, the latest first; breadth first, so that what is near is met in any case."""
    files: dict[Path, float] = {}
    waiting = [(top.resolve(), depth)] if top.is_dir() else []
    while waiting and time.monotonic() < end and len(files) < _MOST_FOUND:
        folder, left = waiting.pop(0)
        if folder in done:
            continue
        done.add(folder)
        here, below = _sorted_out(folder)
        if folder / MANIFEST in here:
            # A run directory is one thing; neither its files nor its folders are offered one by one.
            files[folder / MANIFEST] = here[folder / MANIFEST]
            continue
        files |= here
        waiting += [(path, left - 1) for path in below] if left else []
    return heapq.nlargest(_MOST_FOUND, ((at, path) for path, at in files.items()))


def _sorted_out(folder: Path) -> tuple[dict[Path, float], list[Path]]:
    """Files of a folder that could be of a run, with the time they were changed, and folders to look into."""
    files, below = {}, []
    for entry in _entries(folder):
        if entry.name[0] == ".":
            continue
        if entry.is_dir(follow_symlinks=False):
            if not entry.name.endswith(_NOT_ENTERED):
                below.append(Path(entry.path))
        elif entry.name.endswith(_ENDINGS):
            files[Path(entry.path)] = entry.stat().st_mtime
    return files, below


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:
        return
    for entry in entries:
        try:
            entry.stat()
        except OSError:
            continue
        yield entry


def _from_work(path: Path) -> Path:
    beside = places.work() / path
    return beside if beside.exists() else path


def _matched(path: Path) -> list[Path]:
    return sorted(Path(match) for match in glob.glob(str(path), recursive=True))  # noqa: PTH207 (of any folder)


def _near_name(path: Path) -> str:
    try:
        names = [entry.name for entry in os.scandir(path.parent if str(path.parent) else ".")]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.5)
    return say("own_files.near", name=close[0]) if close else ""
