"""An experiment file while it is edited: a document to change, its text, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from perflab.capture.arguments import check_arguments
from perflab.capture.hardware import hardware
from perflab.capture.probe import Probe
from perflab.errors import InputError, PerflabError
from perflab.experiment import Experiment, Plan, plan
from perflab.experiment.nodes import closest
from perflab.experiment.read import parse_experiment
from perflab.messages import say


@dataclass(frozen=True)
class Checked:
    """What a text is: `problem` says in one line why it is no experiment; else it has a plan.

    Attributes
    ----------
    remarks
        What is no mistake, and still worth knowing.
    against
        The version of vLLM its arguments were checked against; None where they were not.
    """

    experiment: Experiment | None = None
    plan: Plan | None = None
    problem: str | None = None
    remarks: Sequence[str] = ()
    against: str | None = None


@dataclass
class Document:
    """The file as mappings and lists, in the order written; keys the editor has no control for stay as they are."""

    data: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> Document:
        """The document of a text.

        Raises
        ------
        InputError
            When it is not YAML, or no mapping.
        """
        try:
            found = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError(say("editing.not_yaml", why=" ".join(str(error).split()))) from error
        if not isinstance(found, dict):
            raise InputError(say("editing.no_mapping"))
        return cls(found)

    def text(self) -> str:
        """As YAML; comments of the text it came from are not in it."""
        dumped: str = yaml.dump(self.data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
        return dumped

    def put(self, value: Any, *keys: str) -> None:
        """Set a value below keys, or take it away where it is None or empty."""
        at = self.data
        for key in keys[:-1]:
            inner = at.get(key)
            at[key] = at = inner if isinstance(inner, dict) else {}
        if value is None or value == {} or value == []:
            at.pop(keys[-1], None)
        else:
            at[keys[-1]] = value
        if len(keys) > 1 and not at:
            self.put(None, *keys[:-1])

    def get(self, *keys: str) -> Any:
        """The value below keys; None where there is none."""
        at: Any = self.data
        for key in keys:
            at = at.get(key) if isinstance(at, dict) else None
        return at


class _Dumper(yaml.SafeDumper):
    """Lists and mappings of plain values on one line, as people write them."""

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        plain = all(not isinstance(item, dict | list) for item in sequence)
        return super().represent_sequence(tag, sequence, flow_style=plain)


def value_of(text: str) -> Any:
    """What a field's text means in YAML; the text itself where it means nothing. Empty: None."""
    text = text.strip()
    if not text:
        return None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def text_of(value: Any) -> str:
    """A value as a field shows it: `32, 128`, `true`, `{per_concurrency: 4}`."""
    if value is None:
        return ""
    if isinstance(value, list) and all(not isinstance(item, dict | list) for item in value):
        return ", ".join(text_of(item) for item in value)
    dumped: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return dumped.strip().removesuffix("...").strip()


def numbers_of(text: str) -> Any:
    """`32, 128` -> a list, `32` -> a number; anything else as YAML has it."""
    return value_of(f"[{text}]" if "," in text and text.strip()[:1] not in "[{" else text)


def check(text: str, path: Path, engine: Probe | None) -> Checked:
    """Check a text as `perflab run` would check the file.

    Parameters
    ----------
    path
        Where the file stands or will: paths in it lead from there.
    engine
        The installed vLLM; without it names and values of its arguments are not checked.
    """
    try:
        experiment = parse_experiment(text, path)
        remarks = check_arguments(experiment, engine) if engine is not None else []
        flavour = engine.flavour if engine is not None else "gpu" if hardware().gpus else "cpu"
        steps = plan(experiment, flavour, serve=engine.arguments["serve"] if engine is not None else {})
    except PerflabError as error:
        return Checked(problem=_said(error, path), against=None if engine is None else engine.vllm_version)
    return Checked(experiment, steps, None, remarks, None if engine is None else engine.vllm_version)


def _said(error: PerflabError, path: Path) -> str:
    line = error.line if isinstance(error, InputError) else None
    what = str(error).removeprefix(f"{path}:{line}: ").removeprefix(f"{path}: ")
    return what if line is None else say("editing.line", line=line, what=what)


def argument_names(engine: Probe | None) -> list[str]:
    """Names of the engine's arguments that can be set, by the installed vLLM; none where there is none."""
    return sorted(engine.arguments["serve"]) if engine is not None else []


def argument_help(name: str, engine: Probe | None) -> str:
    """What the installed vLLM takes for an argument, or the names it has that are most like it."""
    if engine is None or not name:
        return ""
    known: Mapping[str, Any] = engine.arguments["serve"]
    plain = name.replace("-", "_").split(".")[0]
    argument = known.get(plain)
    if argument is None:
        near = closest(plain, known)
        return say("editing.near", near=", ".join(near)) if near else say("editing.unknown")
    if argument.flag:
        return say("editing.flag")
    if argument.choices:
        return say("editing.choices", choices=", ".join(argument.choices))
    return say("editing.type", type={"int": "a whole number", "float": "a number"}.get(argument.type or "", "a text"))


def save(text: str, path: Path) -> Path:
    """Write the text to `path`; a file there that says something else is not replaced.

    Raises
    ------
    InputError
        When there is such a file, or it cannot be written.
    """
    try:
        if path.exists() and path.read_text(encoding="utf-8") != text:
            raise InputError(say("editing.exists"), path=path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be written: {getattr(error, 'strerror', None) or error}", path=path) from error
    return path
