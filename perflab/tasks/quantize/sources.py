"""What trade-offs are told from: studies (folders of `perflab quantize`), and run directories given one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perflab import places
from perflab.analysis.quantization.recognised import Recognised, recognised
from perflab.analysis.quantization.tradeoffs import BASELINE, Kv
from perflab.errors import InputError
from perflab.messages import say
from perflab.runs import Run, is_run, open_run
from perflab.tasks.find import find_runs
from perflab.tasks.model_config import run_config

STUDY = "study.json"
SPEED, ACCURACY = "speed", "accuracy"
_PARTS = (STUDY, "study.yaml", SPEED, ACCURACY)
_MODES: tuple[Kv, ...] = ("pinned", "free")


@dataclass(frozen=True)
class VariantRun:
    """A run, the variant it is of, and whether its KV cache had a fixed size.

    Attributes
    ----------
    label
        The study's; empty where it gives none.
    found
        What config and settings say that ran.
    """

    run: Run
    variant: str
    kv: Kv
    found: Recognised
    label: str = ""
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Source:
    """One study, or the runs that were given one by one.

    Attributes
    ----------
    name
        The study's; empty for runs.
    told
        Content of `study.json`; empty without it.
    runs
        In the order of the variants.
    accuracy
        Variant -> its folder with `accuracy.json`.
    missing
        What is not there, a sentence each.
    """

    name: str
    path: Path | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[VariantRun, ...] = ()
    accuracy: Mapping[str, Path] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """Variant -> label, as the study names them."""
        return {
            BASELINE if one.get("format") == BASELINE else name: str(one.get("label") or name)
            for name, one in _variants(self.told).items()
        }

    def format_of(self, name: str) -> str:
        """The format of a variant; its own name where the study does not say."""
        listed = _variants(self.told)
        if name == BASELINE:
            return BASELINE
        return str(listed[name].get("format") or name) if name in listed else name


def is_study(path: str | Path) -> bool:
    """Whether a folder is a study: it has `study.json` or `study.yaml`, or runs below `speed`, or `accuracy`."""
    folder = Path(path)
    return folder.is_dir() and not is_run(folder) and any((folder / name).exists() for name in _PARTS)


def recorded_studies() -> list[Path]:
    """The studies that come with perflab, by name."""
    folder = places.recorded() / "studies"
    return [path for path in sorted(folder.iterdir()) if is_study(path)] if folder.is_dir() else []


def find_sources(names: str | Path | Sequence[str | Path]) -> list[Source]:
    """Studies and runs by path or by recorded name; runs that are given one by one stand together.

    Raises
    ------
    InputError
        When something is neither, or a `study.json` cannot be read.
    """
    parts = (
        [str(names)]
        if isinstance(names, Path)
        else [part.strip() for part in names.split(",") if part.strip()]
        if isinstance(names, str)
        else [str(part) for part in names]
    )
    studies: dict[Path, Source] = {}
    runs: dict[Path, Run] = {}
    for part in parts:
        folder = study_folder(part)
        if folder is not None:
            studies.setdefault(folder.resolve(), read_study_folder(folder))
            continue
        for run in _runs(part):
            runs.setdefault(run.path.resolve(), run)
    found = list(studies.values())
    if runs:
        found.append(Source("", runs=tuple(_tagged(run) for run in runs.values())))
    if not found:
        raise InputError(say("tradeoffs.nothing_named"))
    return found


def study_folder(name: str | Path) -> Path | None:
    """The folder of a study by path or recorded name; None where it is none."""
    try:
        recorded = places.recorded() / "studies" / str(name)
    except InputError:
        recorded = Path(name)
    return next((path for path in (Path(name), recorded) if is_study(path)), None)


def read_study_folder(folder: Path) -> Source:
    """A study as far as it has come.

    Raises
    ------
    InputError
        When `study.json` is there and is none.
    """
    told = _told(folder / STUDY)
    listed = _variants(told)
    # A study may call its baseline otherwise; here it has one name.
    names = {name: BASELINE if one.get("format") == BASELINE else name for name, one in listed.items()}
    order = list(names.values())
    labels = {names[name]: str(one.get("label") or "") for name, one in listed.items()}
    runs: list[VariantRun] = []
    missing: list[str] = []
    unfinished: dict[str, list[str]] = {}
    for path in sorted((folder / SPEED).iterdir()) if (folder / SPEED).is_dir() else []:
        name, _, mode = path.name.rpartition("-")
        kv = next((one for one in _MODES if one == mode), None)
        if kv is None or not is_run(path):
            continue
        run = open_run(path)
        config = run_config(run)
        found = recognised(config, run.manifest.engine.settings)
        name = names.get(name, name)
        runs.append(VariantRun(run, name, kv, found, labels.get(name, ""), config))
        if run.manifest.status != "complete":
            unfinished.setdefault(run.manifest.status, []).append(path.name)
    missing += [
        say("tradeoffs.missing.runs", status=status.capitalize(), names=", ".join(names_of))
        for status, names_of in unfinished.items()
    ]
    measured = {one.variant for one in runs}
    # `control` is the baseline scored a second time, to see what is noise; each variant's file tells of it.
    judged = sorted((folder / ACCURACY).glob("*/accuracy.json"))
    found_accuracy = [path for path in judged if path.parent.name != "control" or "control" in names]
    place = {name: i for i, name in enumerate(order)}
    by_name = {names.get(path.parent.name, path.parent.name): path.parent for path in found_accuracy}
    accuracy = dict(sorted(by_name.items(), key=lambda one: place.get(one[0], len(place))))
    # Where nothing of a kind is there at all, one sentence says so, not one a variant.
    if not runs:
        missing.append(say("tradeoffs.missing.all_speed"))
    else:
        missing += [say("tradeoffs.missing.speed", variant=name) for name in order if name not in measured]
    if _is_shape(told):
        order = []
    elif not accuracy:
        missing.append(say("tradeoffs.missing.all_accuracy"))
    else:
        missing += [say("tradeoffs.missing.accuracy", variant=name) for name in order if name not in accuracy]
    runs.sort(key=lambda one: (place.get(one.variant, len(place)), one.variant, one.kv))
    name = str(told.get("name") or folder.resolve().name)
    return Source(name, folder, told, tuple(runs), accuracy, tuple(missing))


def _is_shape(told: Mapping[str, Any]) -> bool:
    """Whether the study's weights are random, so that accuracy is not to be measured."""
    model = told.get("model")
    return isinstance(model, Mapping) and model.get("shape_only") is True


def _told(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {error}", path=file) from error
    if not isinstance(found, dict):
        raise InputError("is no study: it has to be a JSON object", path=file)
    schema = found.get("schema", 1)
    if isinstance(schema, int) and schema > 1:
        raise InputError(f"has schema {schema}, newer than this perflab reads (1); upgrade perflab", path=file)
    return found


def _variants(told: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    listed = told.get("variants")
    return {
        str(one["name"]): one for one in (listed if isinstance(listed, list) else []) if isinstance(one, dict) and
        "name" in one
    }  # fmt: skip


def _runs(name: str) -> list[Run]:
    try:
        return find_runs([name])
    except InputError as error:
        known = ", ".join(path.name for path in recorded_studies())
        hint = say("tradeoffs.studies_known", known=known) if known and not Path(name).exists() else ""
        raise InputError(f"{error.what}{hint}", path=error.path, line=error.line) from error


def _tagged(run: Run) -> VariantRun:
    config = run_config(run)
    settings = run.manifest.engine.settings
    found = recognised(config, settings)
    return VariantRun(run, found.name, "pinned" if is_pinned(settings) else "free", found, "", config)


def is_pinned(settings: Mapping[str, Any]) -> bool:
    """Whether the KV cache was given a size, rather than what the weights leave."""
    return any(
        str(settings.get(name) or "None") not in ("None", "null", "0")
        for name in ("kv_cache_memory_bytes", "num_gpu_blocks_override")
    )
