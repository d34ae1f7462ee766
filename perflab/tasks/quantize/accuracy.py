"""Accuracy of a study's variants through the engine that serves: text scored, compared with the baseline, judged."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from perflab import __version__
from perflab.analysis.quantization.accuracy import MARGIN, Loss, loss
from perflab.capture.cache import write_whole
from perflab.capture.hardware import hardware
from perflab.capture.models import ready_model
from perflab.capture.probe import Probe, probe
from perflab.capture.scoring import Executor, ScoreJob, kernels_named, score
from perflab.errors import CaptureError, InputError, PerflabError
from perflab.experiment.study import AccuracySpec, Study, Variant
from perflab.messages import say
from perflab.runs import now
from perflab.tasks.quantize.experiments import served_model, variant_args
from perflab.tasks.quantize.folder import StudyFolder
from perflab.tasks.quantize.judged import Judged, judged, record
from perflab.tasks.quantize.lm_tasks import measure_tasks
from perflab.tasks.quantize.scored import CONTROL as CONTROL_FILE
from perflab.tasks.quantize.scored import read_control, read_tokens, write_baseline, write_variant
from perflab.tasks.quantize.texts import Text, text_to_score

ACCURACY = "accuracy.json"
CONTROL = "control"
CONTROL_SHARE, FEWEST_WINDOWS = 4, 12
"""The control runs on a quarter of the windows, at least so many."""
WORK = ".work"
_Arrays = dict[str, np.ndarray]


@dataclass
class Measured:
    """What a call did: variants judged, those that were before, those that cannot be and why; those asked tasks."""

    judged: dict[str, Path] = field(default_factory=dict)
    there: dict[str, Path] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


def measure_accuracy(
    study: Study,
    folder: str | Path,
    said: Callable[[str], None] = lambda _: None,
    *,
    variants: Sequence[str] = (),
    deadline: float | None = None,
    margin: float = MARGIN,
    keep: bool = False,
) -> Measured:
    """Judge every variant of a study that is not judged yet, each against the same baseline.

    The baseline is scored first and its next-token distributions are kept in `accuracy/.work` until all variants are
    done; it is scored once more as the control, with prompts computed in other parts. What an earlier call
    scored is not scored again, unless text, window or model differ.

    Parameters
    ----------
    folder
        Of the study; results lie in `accuracy/NAME`.
    said
        Hears what is being done.
    variants
        Only these (and the baseline); empty: all.
    deadline
        `time.monotonic()` after which no further variant is begun.
    margin
        Smallest change of perplexity that matters, as a share.
    keep
        Keep the distributions also when all is done.

    Raises
    ------
    InputError
        The study judges no accuracy, or its weights are made up.
    CaptureError
        The baseline cannot be scored, or a variant could not while no other could either.
    """
    spec = study.accuracy
    if spec is None:
        raise InputError(say("quantize_accuracy.not_asked"), path=study.path)
    if study.is_shape_only:
        raise InputError(say("quantize.no_accuracy_of_shapes"), path=study.path)
    session = _Session(study, spec, StudyFolder(Path(folder).resolve()), said, margin)
    found = session.run(variants, deadline)
    if not keep and not found.failed and session.is_complete():
        shutil.rmtree(session.work, ignore_errors=True)
    if found.failed and not found.judged and not found.there:
        raise CaptureError(next(iter(found.failed.values())))
    if spec.tasks:
        asked = measure_tasks(study, session.place, session.engine, said, variants=variants, deadline=deadline)
        found.asked = asked.done
        found.left_out |= {say("quantize_tasks.of", name=name): why for name, why in asked.left_out.items()}
        found.failed |= asked.failed
    return found


@dataclass
class _Session:
    study: Study
    spec: AccuracySpec
    place: StudyFolder
    said: Callable[[str], None]
    margin: float
    engine: Probe = field(init=False)
    text: Text = field(init=False)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.text = text_to_score(self.spec.text)
        self.engine = probe(self.study.engine.python)

    @property
    def folder(self) -> Path:
        return self.place.path / "accuracy"

    @property
    def work(self) -> Path:
        return self.folder / WORK

    def run(self, names: Sequence[str], deadline: float | None) -> Measured:
        """Score what is left."""
        found = Measured()
        wanted = [one for one in self.study.variants if not names or one.name in names]
        others = [one for one in wanted if one.name != self.study.baseline.name]
        self.begin()
        for one in others:
            if self.is_judged(one.name):
                found.there[one.name] = self.folder / one.name
        todo = [one for one in others if one.name not in found.there]
        if not todo and self.is_judged(self.study.baseline.name):
            return found
        self.notes = ready_model(self.study.model, self.engine, self.said).notes
        base = self.baseline()
        found.judged[self.study.baseline.name] = self.folder / self.study.baseline.name
        for variant in todo:
            if deadline is not None and time.monotonic() > deadline:
                break
            try:
                self.variant(variant, base, found)
            except PerflabError as error:
                found.failed[variant.name] = str(error)
                self.said(say("quantize_accuracy.could_not", name=variant.name, why=error))
        return found

    def identity(self) -> dict[str, Any]:
        """What has to be the same for scores to be comparable."""
        spec = self.spec
        return {
            "text": self.text.sha256, "tokens": spec.tokens, "window": spec.window, "top_k": spec.top_k,
            "kv_prefixes": list(spec.kv_prefixes), "kv_documents": spec.kv_documents,
            "model": self.study.model.name,
            "args": json.dumps(dict(self.study.engine.args), sort_keys=True, default=str),
            "vllm": self.engine.vllm_version,
        }  # fmt: skip

    def key(self) -> str:
        """The identity, short."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:16]

    def begin(self) -> None:
        """The working folder; what was scored of another text or by another engine is dropped."""
        kept = self.work / "key"
        if self.work.is_dir() and (not kept.is_file() or kept.read_text(encoding="utf-8") != self.key()):
            shutil.rmtree(self.work)
        self.work.mkdir(parents=True, exist_ok=True)
        (self.work / "documents.json").write_text(json.dumps(self.text.texts()), encoding="utf-8")
        kept.write_text(self.key(), encoding="utf-8")

    def is_judged(self, name: str) -> bool:
        """Whether a variant has its result, of this text and engine."""
        try:
            told = json.loads((self.folder / name / ACCURACY).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(told.get("key") == self.key())

    def is_complete(self) -> bool:
        """Whether every variant has its result."""
        return all(self.is_judged(one.name) for one in self.study.variants)

    def baseline(self) -> _Arrays:
        """Scores of the baseline, its reference kept, the control made."""
        variant = self.study.baseline
        whole = (self.work / "reference" / "meta.json").is_file() and (self.work / "baseline.npz").is_file()
        if not whole:
            self.score(self.job(variant, "baseline", role="write"), variant.label)
        base = arrays(self.work / "baseline.npz")
        if not (self.work / f"{CONTROL}.npz").is_file():
            windows = json.loads((self.work / "windows.json").read_text(encoding="utf-8"))
            limit = max(-(-len(windows) // CONTROL_SHARE), min(FEWEST_WINDOWS, len(windows)))
            job = self.job(variant, CONTROL, chunk=control_chunk(windows), limit=limit)
            self.score(job, say("quantize_accuracy.control"))
        if not self.is_judged(variant.name):
            write_baseline(self.folder / variant.name, base)
            control = arrays(self.work / f"{CONTROL}.npz")
            write_variant(self.folder / variant.name, control, base, CONTROL_FILE)
            self.tell(variant, "vllm", self.judge(variant.name), base)
        return base

    def variant(self, variant: Variant, base: _Arrays, found: Measured) -> None:
        """Score and judge one variant; where this machine's engine cannot execute it, with its weights decompressed."""
        if served_model(self.study, variant, self.place) is None:
            found.left_out[variant.name] = say("quantize.no_checkpoint", name=variant.name)
            return
        executor: Executor = "vllm"
        if not (self.work / f"{variant.name}.npz").is_file():
            try:
                self.score(self.job(variant, variant.name), variant.label)
            except CaptureError as error:
                if self.engine.flavour != "cpu" or variant.format.how not in ("make", "ready"):
                    raise
                executor = "transformers"
                self.said(say("quantize_accuracy.decompressed", name=variant.name, why=error))
                self.score(self.job(variant, variant.name, executor=executor), variant.label)
        else:
            told = json.loads((self.work / f"{variant.name}.npz.json").read_text(encoding="utf-8"))
            executor = "vllm" if "vllm" in told else "transformers"
        scores = arrays(self.work / f"{variant.name}.npz")
        write_variant(self.folder / variant.name, scores, base)
        self.tell(variant, executor, self.judge(variant.name), scores)
        found.judged[variant.name] = self.folder / variant.name

    def judge(self, name: str) -> Loss:
        return loss(read_tokens(self.folder, name, self.study.baseline.name), margin=self.margin)

    def job(
        self, variant: Variant, name: str, *, role: str = "compare", chunk: int | None = None,
        limit: int | None = None, executor: Executor = "vllm",
    ) -> ScoreJob:  # fmt: skip
        model = served_model(self.study, variant, self.place) or self.study.model
        ready = ready_model(model, self.engine, self.said)
        args = variant_args(self.study, variant, self.engine.vllm_version)
        prefixes = [one for one in self.spec.kv_prefixes if one + 2 <= self.spec.window]
        # Prompt scoring shows what weights cost; a quantized cache has to be read as generation reads it.
        decodes = bool(prefixes) and (variant is self.study.baseline or "kv_cache_dtype" in args)
        return ScoreJob(
            name=name,
            role="write" if role == "write" else "compare",
            model=ready.name,
            args=args,
            window=self.spec.window,
            tokens=self.spec.tokens,
            top_k=self.spec.top_k,
            chunk=chunk,
            limit=limit,
            decode={"prefixes": prefixes, "documents": self.spec.kv_documents} if decodes else None,
            env=self.study.engine.env,
            executor=executor,
            trust_remote_code=model.trust_remote_code,
        )

    def score(self, job: ScoreJob, label: str) -> None:
        self.said(say("quantize_accuracy.scoring", name=job.name, label=label))
        last = time.monotonic()

        def tick(done: int, of: int) -> None:
            nonlocal last
            if of and time.monotonic() - last > 10:
                last = time.monotonic()
                self.said(say("quantize_accuracy.progress", name=job.name, done=done, of=of))

        score(job, self.engine, self.work, tick)

    def tell(self, variant: Variant, executor: Executor, found: Loss, scores: _Arrays) -> None:
        """Write `accuracy.json`, last of all: a result is there once it is."""
        name = variant.name
        job = "baseline" if name == self.study.baseline.name else name
        control = loss(read_control(self.folder, self.study.baseline.name), margin=self.margin)
        ran = json.loads((self.work / f"{job}.npz.json").read_text(encoding="utf-8"))
        facts = Judged(
            study=self.study, variant=variant, name=name, text=self.text, scores=scores, loss=found, control=control,
            executor=executor, ran=ran, kernels=kernels_named(self.work / f"{job}.log"), notes=self.notes,
            args=variant_args(self.study, variant, self.engine.vllm_version), flavour=self.engine.flavour,
            machine=hardware(),
        )  # fmt: skip
        target = self.folder / name
        told = record(facts, judged(facts)) | {"key": self.key(), "perflab": __version__, "made_at": now()}
        told |= kept_tasks(target)
        target.mkdir(parents=True, exist_ok=True)
        write_whole(target / ACCURACY, json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def kept_tasks(target: Path) -> dict[str, Any]:
    """Tasks that an earlier `accuracy.json` tells: they have keys of their own."""
    try:
        found = json.loads((target / ACCURACY).read_text(encoding="utf-8")).get("tasks")
    except (OSError, ValueError, AttributeError):
        found = None
    return {"tasks": found} if found else {}


def arrays(path: Path) -> _Arrays:
    """What a job counted, whole."""
    with np.load(path) as found:
        return {name: found[name] for name in found.files}


def control_chunk(windows: Sequence[Sequence[Any]]) -> int:
    """Tokens computed at once in the control: about 2/5 of a window, so that matmuls have other shapes.

    No part of a prompt is so short (under 4 tokens) that its rows could be taken for the one a token is sampled from.
    """
    lengths: set[int] = {len(ids) for _, _, ids in windows}
    start = max(8, max(lengths) * 2 // 5)
    tried = (*range(start, 2 * start), *range(start, 7, -1))
    fits = (one for one in tried if all(n < one or n % one == 0 or n % one > 3 for n in lengths))
    return next(fits, max(lengths) + 8)
