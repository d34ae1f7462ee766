"""Tasks of lm-eval, answered by the engine that serves, in the engine's Python.

Run as `python score_tasks.py JOB.json`. The job says the model, the engine's arguments and the tasks; see
`perflab/capture/task_scoring.py`. Data sets are loaded before the engine is started, so that what cannot be loaded
costs no start. A task that fails is told and costs no other one; the answer is written anew after each.
"""

import difflib
import hashlib
import json
import logging
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

# As in score_tokens.py: the engine in this very process where one worker does.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")

AT_ONCE = 64
"""Prompts that are given to the engine at once; after each such part progress is told."""


def main(job: "dict[str, Any]") -> None:
    """Answer all tasks of a job."""
    begun = time.monotonic()
    import lm_eval

    answer: dict[str, Any] = {"lm_eval": version_of("lm_eval"), "vllm": None, "tasks": {}}
    loaded = {}
    for spec in job["tasks"]:
        try:
            loaded[spec["name"]] = load(spec)
        except Exception as error:
            answer["tasks"][spec["name"]] = {"key": spec["key"], **why(error)}
    write_whole(job["out"], json.dumps(answer))
    if not loaded:
        return
    progress = Progress(Path(job["progress"]), {name: documents_of(found, spec_of(job, name)["limit"])
                                                for name, (found, _) in loaded.items()})  # fmt: skip
    cut = Cut()
    logging.getLogger("lm_eval").addHandler(cut)
    lm = engine(job, progress)
    answer |= {"vllm": version_of("vllm"), "load_seconds": time.monotonic() - begun}
    for name, (found, manager) in loaded.items():
        spec = spec_of(job, name)
        progress.begin(name)
        cut.count, since = 0, time.monotonic()
        try:
            told = lm_eval.simple_evaluate(
                model=lm, tasks=list(found), task_manager=manager, num_fewshot=spec["shots"], limit=spec["limit"],
                bootstrap_iters=0, log_samples=True,
            )  # fmt: skip
            one = {**scores(told), "cut_prompts": cut.count}
        except Exception as error:
            one = why(error)
        answer["tasks"][name] = {"key": spec["key"], "seconds": time.monotonic() - since, **one}
        progress.end(name)
        write_whole(job["out"], json.dumps(answer))


def spec_of(job: "dict[str, Any]", name: str) -> "dict[str, Any]":
    """A task of the job by its name."""
    found: dict[str, Any] = next(one for one in job["tasks"] if one["name"] == name)
    return found


def load(spec: "dict[str, Any]") -> "tuple[list[Any], Any]":
    """Tasks and groups of a spec with their data sets, and the manager that knows them.

    Files that a task names are looked for beside its YAML, whatever folder this runs in.
    """
    from lm_eval.tasks import TaskManager

    path = Path(spec["path"]) if spec["path"] else None
    folder = str(path) if path and path.is_dir() else None
    manager = TaskManager(include_path=folder)
    asked = str(path) if path and not folder else spec["name"]
    if asked == spec["name"] and asked not in manager.all_tasks:
        raise UnknownTaskError(asked, difflib.get_close_matches(asked, manager.all_tasks, n=3, cutoff=0.7))
    entry = manager.task_index.get(asked) if folder else None
    beside = path.parent if path and not folder else Path(entry.yaml_path).parent if entry and entry.yaml_path else None
    here = Path.cwd()
    try:
        os.chdir(beside or here)
        found = manager.load([asked])
    except TypeError as error:
        # What lm-eval says of a group's member that it does not know is what that member then lacks.
        if path and not folder and is_group(path):
            raise GroupError(asked) from error
        raise
    finally:
        os.chdir(here)
    # A group stands for its tasks, all documents of which count alike.
    return list(found["tasks"].values()), manager


def is_group(path: Path) -> bool:
    """Whether a YAML file names other tasks."""
    return any(line.startswith("group:") for line in path.read_text(encoding="utf-8").splitlines())


class GroupError(Exception):
    """A group by its own file, whose tasks lm-eval does not know."""


class UnknownTaskError(Exception):
    """A task that lm-eval does not know, and names like it."""

    def __init__(self, name: str, near: "list[str]") -> None:
        super().__init__(name)
        self.near = near


def why(error: Exception) -> "dict[str, Any]":
    """What a failure is about, and its first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    if isinstance(error, UnknownTaskError):
        return {"failed": "unknown", "why": str(error), "near": error.near}
    if isinstance(error, GroupError):
        return {"failed": "group", "why": str(error)}
    return {"failed": "data" if is_of_data(error) else "run", "why": said[:400]}


def is_of_data(error: Exception) -> bool:
    """Whether a data set could not be had: no network, no such file, nothing that can be read."""
    kinds = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, OSError) or bool(kinds & {"datasets", "huggingface_hub", "httpx", "requests"})


def documents_of(tasks: "list[Any]", limit: "int | None") -> int:
    """How many documents will be asked."""
    return sum(len(task.eval_docs) if limit is None else min(limit, len(task.eval_docs)) for task in tasks)


class Progress:
    """Documents done of all, by the share of requests that were answered."""

    def __init__(self, file: Path, documents: "dict[str, int]") -> None:
        self.file, self.documents = file, documents
        self.before, self.now, self.asked, self.done = 0, 0, 0, 0
        self.tell()

    def begin(self, name: str) -> None:
        """The next task."""
        self.now, self.asked, self.done = self.documents[name], 0, 0

    def ask(self, requests: int) -> None:
        """Requests that will be answered."""
        self.asked += requests

    def did(self, requests: int) -> None:
        """Requests that were answered."""
        self.done += requests
        self.tell()

    def end(self, name: str) -> None:
        """The task is over."""
        self.before, self.now, self.asked, self.done = self.before + self.documents[name], 0, 0, 0
        self.tell()

    def tell(self) -> None:
        """Write it."""
        within = self.now * min(1.0, self.done / self.asked) if self.asked else 0
        write_whole(self.file, json.dumps({"done": self.before + int(within), "of": sum(self.documents.values())}))


class Cut(logging.Handler):
    """Counts prompts that lm-eval says it cut, since they do not fit the engine."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Look at a line of lm-eval's log."""
        self.count += "runcat" in record.getMessage()


def engine(job: "dict[str, Any]", progress: Progress) -> Any:
    """lm-eval's own model of vLLM, which tells how far it is."""
    from lm_eval.models.vllm_causallms import VLLM

    class Engine(VLLM):  # type: ignore[misc, unused-ignore]
        def loglikelihood(self, requests: Any, *args: Any, **kwargs: Any) -> Any:
            progress.ask(len(requests))
            return super().loglikelihood(requests, *args, **kwargs)

        def loglikelihood_rolling(self, requests: Any, *args: Any, **kwargs: Any) -> Any:
            progress.ask(len(requests))
            return super().loglikelihood_rolling(requests, *args, **kwargs)

        def generate_until(self, requests: Any, *args: Any, **kwargs: Any) -> Any:
            progress.ask(len(requests))
            return super().generate_until(requests, *args, **kwargs)

        def _model_generate(self, requests: Any, *args: Any, **kwargs: Any) -> Any:
            found = super()._model_generate(requests, *args, **kwargs)
            progress.did(len(requests))
            return found

    found = Engine(pretrained=job["model"], batch_size=AT_ONCE, **job["args"])
    # What it was asked for may be "as much as fits"; what prompts have to fit is what the engine made of it.
    found._max_length = found.model.llm_engine.model_config.max_model_len
    return found


def scores(told: "dict[str, Any]") -> "dict[str, Any]":
    """One row a task, document and metric.

    A metric is kept where lm-eval's figure is the mean of its numbers: only then is the difference of two variants a
    mean of differences, which documents can be paired for. The others are named.
    """
    columns: dict[str, list[Any]] = {name: [] for name in ("task", "document", "metric", "value")}
    left_out: set[str] = set()
    digest = hashlib.sha256()
    for task, samples in sorted(told["samples"].items()):
        for metric, values in numbers(samples).items():
            whole = told["results"].get(task, {}).get(metric if "," in metric else f"{metric},none")
            if values is None or not is_mean(whole, list(values.values())):
                left_out.add(metric)
                continue
            columns["task"] += [task] * len(values)
            columns["document"] += list(values)
            columns["metric"] += [metric] * len(values)
            columns["value"] += list(values.values())
        for one in sorted(samples, key=lambda one: (one["doc_id"], one["filter"])):
            digest.update(f"{task} {one['doc_id']} {one['doc_hash']} {one['prompt_hash']}\n".encode())
    up = {metric: is_up for of in told["higher_is_better"].values() for metric, is_up in of.items()}
    return {
        "rows": columns,
        "left_out": sorted(left_out - set(columns["metric"])),
        "higher_is_better": {one: up.get(one.partition(",")[0]) for one in sorted(set(columns["metric"]))},
        "shots": sorted({told["n-shot"][task] for task in told["samples"]}),
        "asked": digest.hexdigest()[:16],
    }


def numbers(samples: "list[dict[str, Any]]") -> "dict[str, dict[int, float] | None]":
    """By metric the number of each document, None where one is no number; `exact_match,strict` names a filter too."""
    found: dict[str, dict[int, float] | None] = {}
    for one in samples:
        for name in one["metrics"]:
            metric = name if one["filter"] == "none" else f"{name},{one['filter']}"
            values = found.setdefault(metric, {})
            try:
                value = float(one[name])
            except (TypeError, ValueError):
                value = math.nan
            if not math.isfinite(value):
                found[metric] = None
            elif values is not None:
                values[int(one["doc_id"])] = value
    return found


def is_mean(whole: Any, values: "list[float]") -> bool:
    """Whether a task's figure is the mean of its documents' numbers."""
    if not values or isinstance(whole, bool) or not isinstance(whole, int | float):
        return False
    return math.isclose(whole, math.fsum(values) / len(values), rel_tol=1e-6, abs_tol=1e-9)


def version_of(name: str) -> "str | None":
    """The version of a package, whatever its distribution is called."""
    from importlib import metadata

    for distribution in metadata.packages_distributions().get(name, ()):
        return metadata.version(distribution)
    return None


def write_whole(path: "str | Path", text: str) -> None:
    """Write a file so that a reader sees all of it or none."""
    part = Path(f"{path}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
