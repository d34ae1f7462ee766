"""Scores on tasks on disk: `accuracy/NAME/tasks.csv.xz`, a row a task, document and metric, of the baseline and of each
variant alike. `name` is the study's name of a task, `task` one of those of lm-eval that it stands for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from perflab.errors import InputError
from perflab.messages import say
from perflab.tasks.quantize.packed import read_packed, write_packed

FILE = "tasks.csv.xz"
COLUMNS = ("name", "task", "document", "metric", "value")


def read_scores(folder: str | Path) -> pd.DataFrame:
    """Scores of one variant.

    Parameters
    ----------
    folder
        `accuracy/NAME` of a study.

    Returns
    -------
    One row a task, document and metric: name, task, document, metric, value.

    Raises
    ------
    InputError
        When the file is missing, is none of ours, or has a score twice.
    """
    path = Path(folder) / FILE
    frame = read_packed(path, COLUMNS, say("quantize_tasks.no_scores"), texts=("name", "task", "metric"))
    frame["value"] = pd.to_numeric(frame["value"], errors="coerce").astype(np.float64)
    frame["document"] = pd.to_numeric(frame["document"], errors="coerce")
    if not np.isfinite(frame[["value", "document"]].to_numpy(dtype=np.float64)).all():
        raise InputError(say("quantize_accuracy.not_finite"), path=path)
    if (twice := frame.duplicated(["name", "task", "document", "metric"])).any():
        first = frame[twice].iloc[0]
        raise InputError(say("quantize_tasks.twice", task=first["task"], document=first["document"]), path=path)
    return frame.astype({"document": "int64"})


def write_scores(folder: Path, frame: pd.DataFrame) -> None:
    """Write the scores of one variant, whole."""
    shown = frame.loc[:, list(COLUMNS)].assign(value=[f"{value:.9g}" for value in frame["value"]])
    write_packed(folder / FILE, shown)


def pair(own: pd.DataFrame, baseline: pd.DataFrame) -> pd.DataFrame:
    """Scores of one task and metric, beside the baseline's of the same documents: what `task_loss` takes.

    Raises
    ------
    InputError
        When the two were not asked the same documents.
    """
    keys = ["task", "document"]
    both = own[[*keys, "value"]].merge(
        baseline[[*keys, "value"]], on=keys, suffixes=("", "_baseline"), how="outer", indicator=True
    )
    if (odd := both["_merge"] != "both").any():
        raise InputError(say("quantize_tasks.other_documents", n=int(odd.sum()), of=len(both)))
    return both.drop(columns="_merge")


def content(path: Path) -> str:
    """A hash of a task of one's own: of the YAML and every file beside it that it names, or of all files of a folder.

    Paths stay out of it: the same files elsewhere are the same task.
    """
    digest = hashlib.sha256()
    folder = path if path.is_dir() else path.parent
    files = sorted(_all_files(path)) if path.is_dir() else sorted(_named(path))
    for file in files:
        digest.update(f"{file.relative_to(folder) if file.is_relative_to(folder) else file.name}\n".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _all_files(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        parts = file.relative_to(folder).parts
        if file.is_file() and not any(part.startswith((".", "__pycache__")) for part in parts):
            yield file


def _named(path: Path) -> set[Path]:
    """A YAML file and the files beside it that its values name: data, other YAML, Python functions."""
    found, waiting = set[Path](), [path]
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found.add(file)
        if file.suffix in (".yaml", ".yml"):
            waiting += [one for value in _values(file) if (one := file.parent / value).is_file()]
    return found


def _values(path: Path) -> Iterator[str]:
    """Every text in a YAML file; of `!function utils.words` the file `utils.py`. Tags of lm-eval are not resolved."""
    try:
        nodes = [yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)]
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"cannot be read: {' '.join(str(error).split())}", path=path) from error
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.MappingNode):
            nodes += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            nodes += node.value
        elif isinstance(node, yaml.ScalarNode):
            is_function = node.tag == "!function"
            value = f"{node.value.rpartition('.')[0].replace('.', '/')}.py" if is_function else node.value
            if 0 < len(value) < 256 and "\n" not in value and "\0" not in value:
                yield value
