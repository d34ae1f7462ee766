"""`perflab quantize make`: checkpoints of a study's variants, made with llm-compressor and kept in its folder."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from perflab import __version__
from perflab.analysis.quantization.suitability import shape_reasons
from perflab.capture.compressor import LLMCOMPRESSOR, Compressor, ready_compressor
from perflab.capture.models import ReadyModel, ready_model
from perflab.capture.probe import probe
from perflab.errors import CaptureError, InputError, PerflabError
from perflab.experiment.study import Algorithm, Study, Variant
from perflab.messages import say
from perflab.runs import now
from perflab.tasks.quantize.folder import FILE, StudyFolder
from perflab.tasks.quantize.machine import shape_of
from perflab.tasks.quantize.recipes import Recipe, recipe_for
from perflab.tasks.quantize.texts import Text, text_to_calibrate, text_to_score

MADE = "perflab-made.json"
_ENOUGH = 400
"""Characters of text for a token of calibration: far more than any tokenizer needs."""


@dataclass
class Made:
    """What came of making checkpoints, by variant."""

    made: dict[str, Path] = field(default_factory=dict)
    there: dict[str, Path] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "schema": 1,
            "made": {name: str(path) for name, path in self.made.items()},
            "already_there": {name: str(path) for name, path in self.there.items()},
            "failed": self.failed,
        }


def make_checkpoints(
    study: Study,
    folder: str | Path,
    said: Callable[[str], None] = lambda _: None,
    *,
    variants: Sequence[str] = (),
    algorithm: Algorithm | None = None,
) -> Made:
    """Make the checkpoints that a study's variants need and that are not there yet.

    Each appears whole or not at all, so that a call that was cut short is gone on with by the next. One that fails does
    not keep others from being made.

    Parameters
    ----------
    folder
        Of the study; checkpoints lie in `checkpoints/NAME`, each with `perflab-made.json`.
    said
        Hears what is being done.
    variants
        Only these; empty: all whose format has to be made.
    algorithm
        In place of the variants' own, see `recipe_for`.

    Raises
    ------
    InputError
        A variant that the study does not have or whose format is not made, weights that are made up, no calibration
        text.
    CaptureError
        There is no environment with llm-compressor and none can be made, or nothing could be made at all.
    """
    place = StudyFolder(Path(folder).resolve())
    keep_file(study, place)
    wanted = [(one, recipe_for(one, algorithm)) for one in _wanted(study, variants)]
    found = Made(there={one.name: place.checkpoint(one.name) for one, _ in wanted if _is_there(place, one)})
    todo = [(one, recipe) for one, recipe in wanted if one.name not in found.there]
    if not todo:
        return found
    if study.is_shape_only:
        raise InputError(say("quantize_make.made_up"), path=study.path)
    calibration = _calibration(study) if any(recipe.calibrated for _, recipe in todo) else None
    model = _model(study, said)
    for name, reasons in _refused(todo, model).items():
        found.failed[name] = say("quantize_make.refused", name=name, reasons="; ".join(reasons))
        said(found.failed[name])
    todo = [(one, recipe) for one, recipe in todo if one.name not in found.failed]
    if todo:
        compressor = ready_compressor(said)
        for number, (variant, recipe) in enumerate(todo, 1):
            job = _Job(study, variant, recipe, model, calibration)
            try:
                label = f"{number}/{len(todo)} {variant.name}"
                found.made[variant.name] = _make(job, place, compressor, said, label)
            except PerflabError as error:
                found.failed[variant.name] = str(error)
    if found.failed and not found.made:
        raise CaptureError(next(iter(found.failed.values())))
    return found


@dataclass(frozen=True)
class _Job:
    study: Study
    variant: Variant
    recipe: Recipe
    model: ReadyModel
    calibration: tuple[Text, int] | None

    @property
    def texts(self) -> list[str]:
        """Calibration text in an order that is the seed's, so that no part of it comes first by its name."""
        if self.calibration is None or not self.recipe.calibrated:
            return []
        documents = list(self.calibration[0].documents)
        random.Random(self.study.seed).shuffle(documents)
        wanted = self.study.calibration.samples * self.study.calibration.length * _ENOUGH
        found, size = [], 0
        for one in documents:
            if size < wanted:
                found.append(one.text)
                size += len(one.text)
        return found


def keep_file(study: Study, place: StudyFolder) -> None:
    """Keep the study's file in its folder, so that what is begun here `perflab quantize run` goes on with.

    Raises
    ------
    InputError
        When the folder holds something else, or cannot be written to.
    """
    if (place.path / FILE).is_file():
        return
    try:
        place.path.mkdir(parents=True, exist_ok=True)
        strangers = sorted(one.name for one in place.path.iterdir() if not one.name.startswith("."))
        if strangers:
            raise InputError(say("quantize.not_empty", name=strangers[0]), path=place.path)
        (place.path / FILE).write_text(study.text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}; choose another with -o", path=place.path) from error


def _wanted(study: Study, names: Sequence[str]) -> list[Variant]:
    for name in names:
        if study.variant(name) is None:
            known = ", ".join(one.name for one in study.variants)
            raise InputError(say("quantize.no_variant", name=name, known=known), path=study.path)
    made = [one for one in study.variants if one.format.how == "make" and one.checkpoint is None]
    return made if not names else [one for one in study.variants if one.name in names]


def _is_there(place: StudyFolder, variant: Variant) -> bool:
    return (place.checkpoint(variant.name) / "config.json").is_file()


def _calibration(study: Study) -> tuple[Text, int]:
    """Text that shares no passage with what is scored, and how many documents were left out for that."""
    spec = study.accuracy
    scored = text_to_score(spec.text) if spec is not None else Text("", ())
    return text_to_calibrate(study.calibration.text, scored)


def _model(study: Study, said: Callable[[str], None]) -> ReadyModel:
    """The study's model in a folder on this machine."""
    ready = ready_model(study.model, probe(study.engine.python), said)
    if ready.config is None:
        raise InputError(say("quantize_make.no_model", name=study.model.name), path=study.path)
    return ready


def _refused(todo: Sequence[tuple[Variant, Recipe]], model: ReadyModel) -> dict[str, tuple[str, ...]]:
    """Variants whose groups do not divide this model's widths, and why; known before anything is begun."""
    config = json.loads(model.config.read_text(encoding="utf-8")) if model.config else None
    found = {variant.name: shape_reasons(variant.format, shape_of(config)) for variant, _ in todo}
    return {name: reasons for name, reasons in found.items() if reasons}


def _make(job: _Job, place: StudyFolder, compressor: Compressor, said: Callable[[str], None], label: str) -> Path:
    target = place.checkpoint(job.variant.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".making-{job.variant.name}-") as made:
        work = Path(made)
        out, facts, texts = work / "checkpoint", work / "facts.json", job.texts
        document: dict[str, Any] = {
            "model": str(job.model.config.parent if job.model.config else job.model.name),
            "out": str(out),
            "facts": str(facts),
            "scheme": job.recipe.scheme,
            "algorithm": job.recipe.algorithm,
            "ignore": list(job.recipe.ignore),
            "seed": job.study.seed,
            "samples": job.recipe.samples(job.study.calibration.samples),
            "length": job.study.calibration.length,
            "trust_remote_code": job.study.model.trust_remote_code,
        }
        if texts:
            (work / "calibration.json").write_text(json.dumps(texts), encoding="utf-8")
            document["calibration"] = str(work / "calibration.json")
        said(say("quantize_make.making_one", label=label, algorithm=job.recipe.algorithm))
        try:
            compressor.run(document, work, job.variant.name, _every(15.0, lambda s: said(_still(label, s))))
        except CaptureError:
            # What it says of its log has to hold after this folder is gone.
            for log in work.glob("*.log"):
                shutil.copy(log, target.parent)
            raise
        told = json.loads(facts.read_text(encoding="utf-8"))
        (out / MADE).write_text(json.dumps(_record(job, texts, told, out), indent=1) + "\n", encoding="utf-8")
        if target.exists():
            shutil.rmtree(target)
        out.rename(target)
    said(say("quantize_make.made_one", label=label, seconds=round(time.monotonic() - begun)))
    return target


def _record(job: _Job, texts: Sequence[str], told: dict[str, Any], out: Path) -> dict[str, Any]:
    calibration = None
    if texts and job.calibration is not None:
        text, left_out = job.calibration
        digest = hashlib.sha256()
        for one in texts:
            digest.update(hashlib.sha256(one.encode()).digest())
        calibration = {
            "text": text.what, "sha256": digest.hexdigest(), "documents": len(texts),
            "documents_left_out": left_out, **(told["calibration"] or {}),
        }  # fmt: skip
    return {
        "schema": 1,
        "variant": job.variant.name,
        "format": job.variant.format.name,
        "model": job.study.model.served_name,
        "recipe": asdict(job.recipe),
        "seed": job.study.seed,
        "calibration": calibration,
        "asked_for": LLMCOMPRESSOR,
        "versions": told["versions"],
        "seconds": told["seconds"],
        "bytes": sum(file.stat().st_size for file in out.iterdir() if file.suffix == ".safetensors"),
        "perflab": __version__,
        "made_at": now(),
        "notes": list(job.model.notes),
    }


def _still(label: str, seconds: float) -> str:
    return say("quantize_make.still", label=label, seconds=round(seconds))


def _every(seconds: float, do: Callable[[float], None]) -> Callable[[], None]:
    begun = last = time.monotonic()

    def tick() -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            do(last - begun)

    return tick
