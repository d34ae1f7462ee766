"""Run directories of one variant, a server each -> one run directory, as if they had been measured in one go.

Points keep the number of their server, so that intervals over servers stay what they are. Files are linked where the
file system can, else copied; the parts stay as they were written, and joining again gives the same.
"""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perflab.capture.cache import write_whole
from perflab.messages import say
from perflab.runs import Manifest, Point, Profile, Run, RunWriter, Status, is_run, open_run
from perflab.runs import Server as ServerRecord

_RANK: dict[Status, int] = {"complete": 4, "partial": 3, "failed": 2, "running": 1, "skipped": 0}


def join_runs(parts: Sequence[Path], target: Path, *, points: int) -> Run | None:
    """Make `target` of the parts, oldest first; None where there is nothing to join.

    Parameters
    ----------
    points
        How many points there are to be in all: the run is complete with that many.
    """
    opened = [open_run(path) for path in parts if is_run(path)]
    runs, others = _alike([run for run in opened if run.manifest.points or run.manifest.servers])
    if not runs:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix=".joining-"))
    try:
        _Joining(runs, work).write(points, others)
        # Two renames, so that a reader finds the old one or the new one but for a moment.
        old = target.with_name(f".old-{target.name}")
        shutil.rmtree(old, ignore_errors=True)
        if target.exists():
            target.rename(old)
        work.chmod(0o755)
        work.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return open_run(target)


def _alike(runs: list[Run]) -> tuple[list[Run], list[Run]]:
    """Those measured on the same kind of machine by the same vLLM as most points are, and the others."""
    if not runs:
        return [], []
    weight: dict[tuple[str, ...], int] = {}
    for run in runs:
        done = sum(point.status == "complete" for point in run.manifest.points)
        weight[_machine(run)] = weight.get(_machine(run), 0) + done
    chosen = max(weight, key=lambda key: weight[key])
    return [run for run in runs if _machine(run) == chosen], [run for run in runs if _machine(run) != chosen]


def _machine(run: Run) -> tuple[str, ...]:
    manifest = run.manifest
    gpus = sorted({gpu.name for gpu in manifest.hardware.gpus})
    # Of a GPU machine its GPU tells it apart; of another, its processor.
    told = gpus or [manifest.hardware.cpu or "", str(manifest.hardware.cores or "")]
    return manifest.engine.vllm_version or "", *told


class _Joining:
    def __init__(self, runs: list[Run], work: Path) -> None:
        self.runs, self.work = runs, work
        self.best: dict[str, tuple[Run, Point]] = {}
        for run in runs:
            for point in run.manifest.points:
                known = self.best.get(point.id)
                if known is None or _RANK[point.status] >= _RANK[known[1].status]:
                    self.best[point.id] = (run, point)

    def write(self, points: int, others: list[Run]) -> None:
        first = self.runs[0].manifest
        kept, kept_profiles = self._points(), self._profiles()
        servers, step_records = self._servers()
        done = sum(point.status == "complete" for point in kept)
        status: Status = "complete" if done >= points else "partial" if done else "failed"
        notes = list(dict.fromkeys(note for run in self.runs for note in run.manifest.notes))
        if others:
            notes.append(say("quantize.other_machines", n=len(others), names=_named(others)))
        # Which servers began the same number: a server run that one visit began and another ended.
        shared = sorted({one.server_run for one in servers if sum(o.server_run == one.server_run for o in servers) > 1})
        if shared:
            notes.append(say("quantize.shared_servers", numbers=", ".join(str(one) for one in shared)))
        manifest = msgspec.structs.replace(
            first,
            status=status,
            reason=None if status == "complete" else say("quantize.joined_partly", done=done, all=points),
            process=None,
            notes=notes,
            asked={**first.asked, "points": points},
            engine=max((run.manifest.engine for run in self.runs), key=lambda one: len(one.settings)),
            commands=[command for run in self.runs for command in run.manifest.commands],
            servers=servers,
            points=kept,
            profiles=kept_profiles,
            step_records=step_records,
            log=servers[0].log if servers else None,
            telemetry=self._concatenated("telemetry", "telemetry.jsonl"),
            clock=self._clock(),
            model_config=self._single("model_config"),
            other_files=[*self._others(), *(one.log for one in servers[1:])],
        )
        RunWriter(self.work / "run", manifest)
        for path in (self.work / "run").iterdir():
            path.rename(self.work / path.name)
        (self.work / "run").rmdir()

    def _points(self) -> list[Point]:
        best = self.best.values()
        for run, point in best:
            files = (point.bench, point.printed, point.metrics_before, point.metrics_after, point.samples)
            self._take(run, files)
        return [point for _, point in sorted(best, key=lambda pair: (pair[1].server_run, pair[1].started or ""))]

    def _profiles(self) -> list[Profile]:
        best: dict[str, tuple[Run, Profile]] = {}
        for run in self.runs:
            for one in run.manifest.profiles:
                known = best.get(one.id)
                if known is None or _RANK[one.status] > _RANK[known[1].status]:
                    best[one.id] = (run, one)
        for run, one in best.values():
            self._take(run, [*one.traces, *one.reports, *one.frontend_traces, *one.tables, one.bench])
        return [one for _, one in best.values()]

    def _servers(self) -> tuple[list[ServerRecord], list[Any]]:
        """Servers in the order in which they were started, their logs numbered anew."""
        found: list[ServerRecord] = []
        records: list[Any] = []
        for run in self.runs:
            for server in run.manifest.servers:
                name = "server" if not found else f"server-{len(found)}"
                log = self._renamed(run, server.log, name)
                stem = server.log.split(".")[0].replace("server", "step_records")
                for one in run.manifest.step_records:
                    if Path(one.file).name.split(".")[0] == stem:
                        file = self._renamed(run, one.file, name.replace("server", "step_records"))
                        records += [msgspec.structs.replace(one, file=file)] if file else []
                found.append(msgspec.structs.replace(server, log=log or server.log))
        return [one for one in found if (self.work / one.log).is_file()], records

    def _renamed(self, run: Run, name: str, stem: str) -> str | None:
        source = run.path / name
        if not source.is_file():
            return None
        target = stem + "".join(Path(name).suffixes)
        _link(source, self.work / target)
        return target

    def _take(self, run: Run, names: Iterable[str | None]) -> None:
        for name in names:
            source = None if name is None else run.path / name
            if name is not None and source is not None and source.is_file():
                target = self.work / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                _link(source, target)

    def _single(self, field: str) -> str | None:
        """A file that is the same in all parts: the first's."""
        for run in self.runs:
            name = getattr(run.manifest, field)
            if isinstance(name, str) and (run.path / name).is_file():
                self._take(run, [name])
                return name
        return None

    def _others(self) -> list[str]:
        """What else parts keep: the experiment's file, and the client's log of each, one after the other."""
        found: list[str] = []
        first = self.runs[0]
        names = list(first.manifest.other_files)
        for name in names:
            if Path(name).name.startswith("experiment.yaml"):
                self._take(first, [name])
                found.append(name)
        texts = [_text(run.path / name) for run in self.runs for name in run.manifest.other_files if _is_client(name)]
        if any(texts):
            (self.work / "client.log").write_text("".join(texts), encoding="utf-8", errors="surrogateescape")
            found.append("client.log")
        return found

    def _concatenated(self, field: str, name: str) -> str | None:
        files = [run.path / value for run in self.runs if (value := getattr(run.manifest, field))]
        if not (texts := [text for file in files if (text := _text(file))]):
            return None
        whole = "".join(text if text.endswith("\n") else text + "\n" for text in texts)
        (self.work / name).write_text(whole, encoding="utf-8", errors="surrogateescape")
        return name

    def _clock(self) -> str | None:
        """Anchors of each point from the part it was measured in: the clock begins anew with each machine."""
        head: dict[str, Any] = {}
        anchors: list[Any] = []
        for run in self.runs:
            text = _text(run.path / run.manifest.clock) if run.manifest.clock else ""
            mine = {name for name, (other, _) in self.best.items() if other is run}
            with contextlib.suppress(ValueError):
                document = json.loads(text) if text else {}
                head = head or {key: value for key, value in document.items() if key != "anchors"}
                anchors += [one for one in document.get("anchors", []) if one.get("point") in mine]
        if not head:
            return None
        write_whole(self.work / "clock.json", json.dumps({**head, "anchors": anchors}, indent=1))
        return "clock.json"


def _is_client(name: str) -> bool:
    return Path(name).name.startswith("client.log")


def _text(file: Path) -> str:
    if not file.is_file():
        return ""
    data = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
    return data.decode("utf-8", errors="surrogateescape")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _named(runs: Sequence[Run]) -> str:
    return ", ".join(run.path.name for run in runs)


def manifest_of(path: Path) -> Manifest | None:
    """The manifest of a part; None where it has none that can be read."""
    if not is_run(path):
        return None
    return open_run(path).manifest
