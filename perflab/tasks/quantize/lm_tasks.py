"""Tasks of lm-eval in a study: asked through the engine that serves, paired with the baseline, told in `accuracy.json`.

Scores lie in `accuracy/NAME/tasks.csv.xz`, what they come to under `tasks` of `accuracy/NAME/accuracy.json`, an entry a
task and metric; each entry has the `key` of what was asked, so that what is there is not asked again, and a task that
changed is. What a job that was cut short had answered is taken from `accuracy/.tasks`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from perflab.analysis.quantization.task_scores import task_loss
from perflab.capture.cache import write_whole
from perflab.capture.models import ready_model
from perflab.capture.probe import Probe
from perflab.capture.task_scoring import TaskJob, answers, ask_tasks, need_lm_eval
from perflab.errors import CaptureError, InputError, SchemaError
from perflab.experiment.study import Study, TaskSpec, Variant
from perflab.messages import say
from perflab.tasks.quantize.experiments import served_model, variant_args
from perflab.tasks.quantize.folder import StudyFolder
from perflab.tasks.quantize.task_files import COLUMNS, content, pair, read_scores, write_scores
from perflab.tasks.quantize.task_words import failure, is_of_few_flips, notes, sentence

ACCURACY = "accuracy.json"
WORK = ".tasks"
_Entry = dict[str, Any]


@dataclass
class Asked:
    """What came of a study's tasks; keys are variants, or tasks that the baseline could not be asked."""

    done: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def measure_tasks(
    study: Study,
    place: StudyFolder,
    engine: Probe,
    said: Callable[[str], None] = lambda _: None,
    *,
    variants: Sequence[str] = (),
    deadline: float | None = None,
) -> Asked:
    """Ask every variant whose text is judged the study's tasks, the baseline first.

    A task that the baseline cannot be asked is not asked of others. Nothing here is raised that would cost what was
    judged before: what failed is told.

    Parameters
    ----------
    variants
        Only these (and the baseline); empty: all.
    deadline
        `time.monotonic()` after which no further variant is begun.
    """
    found = Asked()
    session = _Session(study, place.path / "accuracy", place, engine, said, found)
    try:
        session.run(variants, deadline)
    except (CaptureError, InputError) as error:
        found.failed["tasks"] = str(error)
        said(str(error))
    if not found.failed:
        shutil.rmtree(session.work, ignore_errors=True)
    return found


@dataclass
class _Session:
    study: Study
    folder: Path
    place: StudyFolder
    engine: Probe
    said: Callable[[str], None]
    found: Asked
    is_ready: bool = False

    @property
    def work(self) -> Path:
        return self.folder / WORK

    @property
    def specs(self) -> tuple[TaskSpec, ...]:
        return self.study.accuracy.tasks if self.study.accuracy else ()

    def run(self, names: Sequence[str], deadline: float | None) -> None:
        """The baseline, then the others, with what the baseline could be asked."""
        keys = {one.name: self.key(one) for one in self.specs}
        base = self.study.baseline
        if self.told(base.name) is None:
            return
        self.variant(base, keys)
        scored = {name: keys[name] for name in self.there(base.name, keys)}
        for one in self.study.variants:
            if one is base or (names and one.name not in names) or self.told(one.name) is None:
                continue
            if deadline is not None and time.monotonic() > deadline:
                return
            try:
                self.variant(one, scored)
            except (CaptureError, InputError) as error:
                self.fail(say("quantize_tasks.of", name=one.name), str(error))

    def key(self, spec: TaskSpec) -> str:
        """A hash of what is asked of which model by what engine."""
        what = {
            "name": spec.name, "path": None if spec.path is None else content(spec.path), "limit": spec.limit,
            "shots": spec.shots, "model": self.study.model.name, "vllm": self.engine.vllm_version,
            "args": json.dumps(dict(self.study.engine.args), sort_keys=True, default=str),
        }  # fmt: skip
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]

    def variant(self, variant: Variant, keys: Mapping[str, str]) -> None:
        """Ask one variant what it was not asked yet."""
        name = variant.name
        told = self.told(name) or {}
        self.keep(name, keys)
        if told.get("executed_by") == "transformers":
            self.found.left_out[name] = say("quantize_tasks.not_served")
            return
        self.take(name, keys)
        left = [one for one in self.specs if one.name in keys and one.name not in self.there(name, keys)]
        if not left:
            return
        if not self.is_ready:
            need_lm_eval(self.engine)
            self.is_ready = True
        self.said(say("quantize_tasks.asking", name=name, tasks=", ".join(one.name for one in left)))
        try:
            ask_tasks(self.job(variant, left, keys), self.engine, self.work, self.ticks(name))
        finally:
            # Also what was answered before it failed or was stopped.
            self.take(name, keys)
        self.found.done.append(name)

    def ticks(self, name: str) -> Callable[[int, int], None]:
        """Says how far a variant is, every ten seconds."""
        last = time.monotonic()

        def tick(done: int, of: int) -> None:
            nonlocal last
            if of and time.monotonic() - last > 10:
                last = time.monotonic()
                self.said(say("quantize_tasks.progress", name=name, done=done, of=of))

        return tick

    def job(self, variant: Variant, left: Sequence[TaskSpec], keys: Mapping[str, str]) -> TaskJob:
        model = served_model(self.study, variant, self.place) or self.study.model
        return TaskJob(
            name=variant.name,
            model=ready_model(model, self.engine, self.said).name,
            args=variant_args(self.study, variant, self.engine.vllm_version),
            tasks=[
                {
                    "name": one.name, "path": None if one.path is None else str(one.path), "limit": one.limit,
                    "shots": one.shots, "key": keys[one.name],
                }
                for one in left
            ],
            env=self.study.engine.env,
            trust_remote_code=model.trust_remote_code,
        )  # fmt: skip

    def take(self, name: str, keys: Mapping[str, str]) -> None:
        """Judge what a job answered and write it; what was taken once is not taken again."""
        given = answers(self.work, name)
        (self.work / f"{name}.json").unlink(missing_ok=True)
        fresh = {task: one for task, one in given.items() if keys.get(task) == one.get("key")}
        for spec in self.specs:
            if spec.name in fresh:
                self.add(name, spec, fresh[spec.name])

    def add(self, name: str, spec: TaskSpec, answer: Mapping[str, Any]) -> None:
        """Judge one task and write it into the variant's two files."""
        try:
            entries = self.judged(name, spec, answer)
        except (InputError, SchemaError) as error:
            entries = [{"name": spec.name, "failed": str(error)}]
            self.fail(spec.name if name == self.study.baseline.name else f"{name}, {spec.name}", str(error))
        whole = self.told(name) or {}
        others = [one for one in whole.get("tasks") or [] if one.get("name") != spec.name]
        asked = {"key": answer["key"], "lm_eval": answer.get("lm_eval")}
        self.tell(name, [*others, *({**one, **asked} for one in entries)])

    def judged(self, name: str, spec: TaskSpec, answer: Mapping[str, Any]) -> list[_Entry]:
        """Write the scores of a task; returns its entries."""
        rows = answer.get("rows") or {}
        if not rows.get("value"):
            raise InputError(failure(spec, answer))
        base = self.told(self.study.baseline.name) or {}
        theirs = {one.get("asked") for one in base.get("tasks") or [] if one.get("name") == spec.name}
        if name != self.study.baseline.name and theirs != {answer.get("asked")}:
            raise InputError(say("quantize_tasks.other_questions", task=spec.name))
        mine = pd.DataFrame({"name": spec.name, **rows})[list(COLUMNS)]
        old = self.scores(name)
        write_scores(self.folder / name, pd.concat([old[old["name"] != spec.name], mine], ignore_index=True))
        return self.entries(name, spec, answer, self.scores(name))

    def entries(self, name: str, spec: TaskSpec, answer: Mapping[str, Any], scores: pd.DataFrame) -> list[_Entry]:
        """An entry a metric."""
        is_base = name == self.study.baseline.name
        mine = scores[scores["name"] == spec.name]
        theirs = self.scores(self.study.baseline.name)
        theirs = theirs[theirs["name"] == spec.name]
        found = []
        for metric, own in mine.groupby("metric", sort=False):
            paired = pair(own, own if is_base else theirs[theirs["metric"] == metric])
            one = task_loss(paired, higher_is_better=answer["higher_is_better"].get(metric))
            figures = one.to_json() | ({"baseline": None, "difference": None, "flips": None} if is_base else {})
            words = {} if is_base else {"sentence": sentence(spec.name, str(metric), one)}
            told = [*notes(spec, answer), *([words["sentence"]] if words and is_of_few_flips(one) else [])]
            found.append({
                "name": spec.name, "metric": metric, "tasks": sorted(set(own["task"])), "shots": answer["shots"],
                "limit": spec.limit, "asked": answer.get("asked"), **figures,
                "verdict": None if is_base else {**figures["verdict"], **words}, "notes": told,
            })  # fmt: skip
        return found

    def scores(self, name: str) -> pd.DataFrame:
        """What is on disk; without rows where nothing is."""
        try:
            return read_scores(self.folder / name)
        except InputError:
            return pd.DataFrame({column: [] for column in COLUMNS})

    def there(self, name: str, keys: Mapping[str, str]) -> set[str]:
        """Tasks that have their result, as they are asked now."""
        entries = (self.told(name) or {}).get("tasks") or []
        return {one["name"] for one in entries if not one.get("failed") and keys.get(one.get("name")) == one.get("key")}

    def keep(self, name: str, keys: Mapping[str, str]) -> None:
        """Drop results of tasks asked otherwise now, or no more, and those paired with answers since replaced."""
        entries = (self.told(name) or {}).get("tasks") or []
        base = (self.told(self.study.baseline.name) or {}).get("tasks") or []
        asked = {one.get("name"): one.get("asked") for one in base}
        kept = [
            one
            for one in entries
            if keys.get(one.get("name")) == one.get("key")
            and (one.get("failed") or one.get("asked") == asked.get(one.get("name")))
        ]
        if len(kept) < len(entries):
            self.tell(name, kept)

    def told(self, name: str) -> dict[str, Any] | None:
        """What `accuracy.json` of a variant says; None where there is none."""
        try:
            found = json.loads((self.folder / name / ACCURACY).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def tell(self, name: str, entries: Sequence[_Entry]) -> None:
        """Set the entries of tasks, in the order of the study."""
        order = {one.name: index for index, one in enumerate(self.specs)}
        whole = self.told(name) or {}
        whole["tasks"] = sorted(entries, key=lambda one: order.get(one.get("name", ""), len(order)))
        write_whole(self.folder / name / ACCURACY, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")

    def fail(self, what: str, why: str) -> None:
        """Tell a failure."""
        self.found.failed[what] = why
        self.said(say("quantize_tasks.could_not", what=what, why=why))
