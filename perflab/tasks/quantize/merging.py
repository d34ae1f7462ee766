"""Folders of one study, from several machines or visits, put together into one.

Two visits that began anew each call their first server number 0. They are two servers: where both measured the same
points, one of them gets the next number that is free. Nothing is measured twice that way, and nothing is lost.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from perflab.errors import InputError
from perflab.experiment.study import KvMode
from perflab.messages import say
from perflab.runs import MANIFEST, Manifest, Run
from perflab.tasks.quantize.folder import FILE, StudyFolder, same_study
from perflab.tasks.quantize.joined import join_runs, manifest_of

_PART = re.compile(r"(?P<variant>.+)-(?P<mode>pinned|free)-s(?P<server>\d+)(?:\.\d+)?")
_SERVER = re.compile(r"-s(\d+)-n(\d+)")


@dataclass
class Merged:
    """What came of it: parts taken, with the name each has now, those that were there, and the joined runs."""

    folder: Path
    taken: dict[str, str] = field(default_factory=dict)
    there: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "schema": 1,
            "folder": str(self.folder),
            "taken": self.taken,
            "already_there": self.there,
            "also": self.others,
            "runs": [{"path": str(run.path), "status": run.manifest.status} for run in self.runs],
        }


def merge_studies(folders: Sequence[str | Path], out: str | Path) -> Merged:
    """Put folders of one study into `out`, which may hold it already; the folders stay as they are.

    Raises
    ------
    InputError
        When one is no study, or another one than the first (or than the one in `out`).
    """
    sources = [StudyFolder(Path(one).resolve()) for one in folders]
    target = StudyFolder(Path(out).resolve())
    for source in sources:
        if not source.record.is_file() or not (source.path / FILE).is_file():
            raise InputError(say("quantize.no_study"), path=source.path)
    _agree(sources, target)
    if not target.record.is_file():
        target.path.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(sources[0].path / FILE, target.path / FILE)
        target.tell({**sources[0].told(), "visits": []})
    found = Merged(target.path)
    for source in sources:
        if source.path != target.path:
            _take_parts(source, target, found)
            _take_rest(source, target, found)
    found.runs = _joined(target)
    return found


def _agree(sources: Sequence[StudyFolder], target: StudyFolder) -> None:
    first = target if target.record.is_file() else sources[0]
    name, text = first.told().get("name"), (first.path / FILE).read_text(encoding="utf-8")
    for other in sources:
        if other.told().get("name") != name:
            raise InputError(say("quantize.other_study", name=other.told().get("name"), ours=name), path=other.record)
        same_study((other.path / FILE).read_text(encoding="utf-8"), text, other.path / FILE)


def _take_parts(source: StudyFolder, target: StudyFolder, found: Merged) -> None:
    known = {one.id for path in _parts(target) if (one := manifest_of(path)) is not None}
    for path in _parts(source):
        manifest, match = manifest_of(path), _PART.fullmatch(path.name)
        if manifest is None or match is None:
            continue
        if manifest.id in known:
            found.there.append(path.name)
            continue
        mode: KvMode = "pinned" if match["mode"] == "pinned" else "free"
        number = _free_number(target, match["variant"], mode, int(match["server"]), manifest)
        new = target.new_part(match["variant"], mode, number)
        _copy(path, new, manifest, number)
        found.taken[f"{source.path.name}/{path.name}"] = new.name


def _parts(folder: StudyFolder) -> list[Path]:
    base = folder.path / "speed" / "parts"
    return sorted(path for path in base.iterdir() if path.is_dir()) if base.is_dir() else []


def _free_number(target: StudyFolder, variant: str, mode: KvMode, server: int, manifest: Manifest) -> int:
    """The part's own number, unless points of it were measured under that number before: then the next one free."""
    done = {
        point.id
        for path in target.parts(variant, mode)
        if (one := manifest_of(path)) is not None
        for point in one.points
        if point.status == "complete"
    }
    mine = [point.id for point in manifest.points if point.status == "complete"]
    number = server
    while any(_numbered(name, number) in done for name in mine):
        number += 1
    return number


def _numbered(text: str, server: int) -> str:
    """Every point's id in a text, under another number of its server."""
    return _SERVER.sub(lambda match: f"-s{server}-n{match[2]}", text)


def _copy(source: Path, target: Path, manifest: Manifest, number: int) -> None:
    """A part under another number: in its manifest, and in the names of its files."""
    numbers = {point.server_run for point in manifest.points} | {one.server_run for one in manifest.servers}
    if numbers <= {number}:
        shutil.copytree(source, target)
        return
    target.mkdir(parents=True)
    for path in sorted(source.rglob("*")):
        if path.is_file():
            new = target / _numbered(path.relative_to(source).as_posix(), number)
            new.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, new)
    if manifest.clock and (target / manifest.clock).suffix == ".json":
        clock = target / manifest.clock
        clock.write_text(_numbered(clock.read_text(encoding="utf-8"), number), encoding="utf-8")
    renamed = msgspec.json.decode(_numbered(msgspec.json.encode(manifest).decode(), number), type=Manifest)
    renamed = msgspec.structs.replace(
        renamed,
        points=[msgspec.structs.replace(one, server_run=number) for one in renamed.points],
        servers=[msgspec.structs.replace(one, server_run=number) for one in renamed.servers],
        step_records=[msgspec.structs.replace(one, server_run=number) for one in renamed.step_records],
        notes=[*renamed.notes, say("quantize.renumbered", number=number, before=min(numbers))],
    )
    (target / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(renamed), indent=1))


def _take_rest(source: StudyFolder, target: StudyFolder, found: Merged) -> None:
    """Checkpoints and accuracy of variants that have none yet; visits, and variants of the record."""
    for kind in ("checkpoints", "accuracy"):
        folder = source.path / kind
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if path.is_dir() and not path.name.startswith(".") and not (target.path / kind / path.name).exists():
                shutil.copytree(path, target.path / kind / path.name)
                found.others.append(f"{kind}/{path.name}")
    theirs, ours = source.told(), target.told()
    visits = {one.get("started"): one for one in [*(ours.get("visits") or []), *(theirs.get("visits") or [])]}
    variants = {one.get("name"): one for one in [*(theirs.get("variants") or []), *(ours.get("variants") or [])]}
    order = [one.get("name") for one in [*(ours.get("variants") or []), *(theirs.get("variants") or [])]]
    target.tell(
        {
            "visits": [visits[key] for key in sorted(visits, key=str)],
            "variants": [variants[name] for name in dict.fromkeys(order)],
        }
    )


def _joined(target: StudyFolder) -> list[Run]:
    pairs = {(match["variant"], match["mode"]) for path in _parts(target) if (match := _PART.fullmatch(path.name))}
    found = []
    for variant, mode in sorted(pairs):
        kind: KvMode = "pinned" if mode == "pinned" else "free"
        parts = target.parts(variant, kind)
        run = join_runs(parts, target.run(variant, kind), points=_expected(parts))
        found += [run] if run is not None else []
    return found


def _expected(parts: Sequence[Path]) -> int:
    """Points in all: those of the server with most, as often as the study starts one."""
    by_server: dict[int, set[str]] = {}
    starts = 1
    for path in parts:
        manifest = manifest_of(path)
        if manifest is None:
            continue
        asked = manifest.asked.get("server_runs")
        starts = max(starts, asked) if isinstance(asked, int) else starts
        for point in manifest.points:
            by_server.setdefault(point.server_run, set()).add(point.id)
    return starts * max((len(ids) for ids in by_server.values()), default=0)
