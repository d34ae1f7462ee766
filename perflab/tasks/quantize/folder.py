"""The folder of a study: its file, what became of it (`study.json`), and where its parts lie."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perflab import __version__
from perflab.capture.cache import write_whole
from perflab.errors import InputError
from perflab.experiment.study import KvMode, Study
from perflab.messages import say
from perflab.runs import Hardware, now

SCHEMA = 1
FILE, RECORD = "study.yaml", "study.json"


@dataclass(frozen=True)
class StudyFolder:
    """Where things of a study lie."""

    path: Path

    @property
    def record(self) -> Path:
        """`study.json`."""
        return self.path / RECORD

    def checkpoint(self, variant: str) -> Path:
        """What was made of the model for a variant."""
        return self.path / "checkpoints" / variant

    def run(self, variant: str, mode: KvMode) -> Path:
        """The run directory of a variant: all its servers, joined."""
        return self.path / "speed" / f"{variant}-{mode}"

    def experiment(self, variant: str, mode: KvMode) -> Path:
        """Its experiment file."""
        return self.path / "speed" / "experiments" / f"{variant}-{mode}.yaml"

    def parts(self, variant: str, mode: KvMode) -> list[Path]:
        """Its run directories, one a server that was started, oldest first."""
        folder = self.path / "speed" / "parts"
        if not folder.is_dir():
            return []
        return sorted(
            (one for one in folder.iterdir() if _stem(one.name) == f"{variant}-{mode}" and one.is_dir()), key=_order
        )

    def new_part(self, variant: str, mode: KvMode, server_run: int) -> Path:
        """A directory for one more server: the next number that no earlier visit took."""
        base = self.path / "speed" / "parts"
        taken = {one.name for one in base.iterdir()} if base.is_dir() else set()
        name = f"{variant}-{mode}-s{server_run}"
        number = 0
        while (full := name if not number else f"{name}.{number}") in taken:
            number += 1
        return base / full

    def told(self) -> dict[str, Any]:
        """What `study.json` holds; empty where there is none.

        Raises
        ------
        InputError
            When it is there and cannot be read.
        """
        if not self.record.is_file():
            return {}
        try:
            found = json.loads(self.record.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"cannot be read: {error}", path=self.record) from error
        if not isinstance(found, dict):
            raise InputError("is no study: it has to be a JSON object", path=self.record)
        return found

    def tell(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Set top-level keys of `study.json`, and write it whole."""
        told = {**self.told(), **changes, "updated_at": now()}
        write_whole(self.record, json.dumps(told, indent=1, ensure_ascii=False) + "\n")
        return told


def _stem(name: str) -> str:
    """`fp8-pinned-s2.1` -> `fp8-pinned`."""
    return name.rpartition("-s")[0]


def _order(path: Path) -> tuple[int, int]:
    server, _, again = path.name.rpartition("-s")[2].partition(".")
    return (int(server) if server.isdigit() else 0, int(again) if again.isdigit() else 0)


def begin(study: Study, folder: str | Path, variants: Callable[[], Sequence[Mapping[str, Any]]]) -> StudyFolder:
    """The folder of a study, made if need be.

    Parameters
    ----------
    variants
        What `study.json` says of each variant.

    Raises
    ------
    InputError
        When the folder holds another study, or something else.
    """
    found = StudyFolder(Path(folder).resolve())
    try:
        found.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}; choose another with -o", path=found.path) from error
    told = found.told()
    strangers = [one.name for one in found.path.iterdir() if not one.name.startswith(".")] if not told else []
    if strangers and not (found.path / FILE).is_file():
        raise InputError(say("quantize.not_empty", name=sorted(strangers)[0]), path=found.path)
    if told and told.get("name") != study.name:
        raise InputError(say("quantize.other_study", name=told.get("name"), ours=study.name), path=found.record)
    kept = found.path / FILE
    if kept.resolve() != study.path.resolve():
        if kept.is_file():
            same_study(kept.read_text(encoding="utf-8"), study.text, kept)
        kept.write_text(study.text, encoding="utf-8")
    found.tell(
        {
            "schema": SCHEMA,
            "name": study.name,
            "title": study.title,
            "model": {
                "name": study.model.served_name,
                "kind": study.model.kind,
                "shape_only": study.is_shape_only,
            },
            "variants": list(variants()),
            "server_runs": study.server_runs,
            "slos": _limits(study),
            "perflab": __version__,
            "made_at": told.get("made_at") or now(),
            "visits": told.get("visits") or [],
        }
    )
    return found


def _limits(study: Study) -> dict[str, dict[str, float]]:
    return {name: {f"{key}_ms": limit for key, limit in one.given.items()} for name, one in study.slos.items()}


_FREE = ("title", "model", "server_runs", "accuracy", "calibration", "slos", "profile", "telemetry", "point_deadline_s")
_FREE_KV = ("free", "free_loads", "free_server_runs")


def same_study(kept: str, given: str, path: Path) -> None:
    """Refuse another study: what is measured has to stay what it was. Servers, free loads, variants may be more.

    Raises
    ------
    InputError
        About the file `path`, naming what differs.
    """
    first, second = _essence(kept), _essence(given)
    names = set(first["variants"]) & set(second["variants"])
    differ = [key for key in {**first, **second} if key != "variants" and first.get(key) != second.get(key)]
    differ += [f"variants.{name}" for name in names if first["variants"][name] != second["variants"][name]]
    if differ:
        raise InputError(say("quantize.changed_study", what=", ".join(sorted(differ))), path=path)


def _essence(text: str) -> dict[str, Any]:
    found = yaml.safe_load(text)
    document: dict[str, Any] = dict(found) if isinstance(found, dict) else {}
    engine = document.get("engine") or {}
    kv = document.get("kv") or {}
    variants = [one if isinstance(one, dict) else {"name": one} for one in document.get("variants") or []]
    return {
        **{key: value for key, value in document.items() if key not in (*_FREE, "engine", "kv", "variants")},
        "engine": {key: engine.get(key) for key in ("args", "env")},
        "kv": {key: value for key, value in kv.items() if key not in _FREE_KV},
        "variants": {str(one.get("name")): {k: v for k, v in one.items() if k != "checkpoint"} for one in variants},
    }


@dataclass
class Visit:
    """One call of `perflab quantize run`: logged in `study.json` from its beginning on, so that one cut short shows."""

    folder: StudyFolder
    machine: Hardware
    vllm: str | None
    entry: dict[str, Any]

    @classmethod
    def begun(cls, folder: StudyFolder, machine: Hardware, vllm: str | None, asked: Mapping[str, Any]) -> Visit:
        """Log its beginning."""
        entry: dict[str, Any] = {
            "started": now(),
            "ended": None,
            "gpus": [gpu.name for gpu in machine.gpus],
            "cpu": machine.cpu,
            "vllm": vllm,
            "perflab": __version__,
            "asked": dict(asked),
            "did": [],
            "failed": [],
            "left": None,
        }
        visit = cls(folder, machine, vllm, entry)
        folder.tell({"visits": [*(folder.told().get("visits") or []), entry]})
        return visit

    def log(self, **changes: Any) -> None:
        """Bring its entry, the last one, up to date."""
        self.entry.update(changes)
        visits = list(self.folder.told().get("visits") or [])
        at = next((i for i, one in enumerate(visits) if one.get("started") == self.entry["started"]), None)
        if at is None:
            visits.append(self.entry)
        else:
            visits[at] = self.entry
        self.folder.tell({"visits": visits})

    def did(self, what: str) -> None:
        """Log something that was done."""
        self.log(did=[*self.entry["did"], what])

    def failed(self, what: str, why: str) -> None:
        """Log something that failed."""
        self.log(failed=[*self.entry["failed"], {"what": what, "why": why}])


def drop(path: Path) -> None:
    """Remove a folder of ours."""
    shutil.rmtree(path, ignore_errors=True)
