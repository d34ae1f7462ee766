"""An experiment file -> `Experiment`. docs/experiment-file.md describes every key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perflab.errors import InputError
from perflab.experiment.attaching import check_attached, read_trace_dir, read_url
from perflab.experiment.changes import changed
from perflab.experiment.nodes import Source, Table, checked_name
from perflab.experiment.packaged import packaged_models
from perflab.experiment.profiles import read_profiles
from perflab.experiment.secrets import is_secret_name
from perflab.experiment.spec import EngineSpec, Experiment, Model, Slos
from perflab.experiment.workloads import read_slos, read_workloads

_TOP = (
    "name", "title", "model", "engine", "workloads", "repeats", "server_runs", "seed", "slos", "prefix_caching",
    "profile", "telemetry", "step_records", "point_deadline_s",
)  # fmt: skip
_ENGINE = ("args", "env", "python", "startup_deadline_s", "url", "allow_remote", "trace_dir")
# What perflab sets itself, and where to say it instead.
_OURS = {
    "model": "use the top-level key `model`",
    "model_tag": "use the top-level key `model`",
    "served_model_name": "use model.served_name",
    "trust_remote_code": "use model.trust_remote_code",
    "host": "perflab listens on the loopback address only",
    "port": "perflab picks a free port",
    "uds": "perflab listens on the loopback address only",
    "profiler_config": "use the top-level key `profile`",
    "api_key": "the server listens on the loopback address only and needs none",
}


def read_experiment(path: str | Path, changes: Sequence[str] = ()) -> Experiment:
    """Read and check an experiment file.

    Parameters
    ----------
    changes
        Values to set over those of the file, `KEY=VALUE`; see `perflab.experiment.changes`.

    Raises
    ------
    InputError
        With the line: the file is not YAML, has a key it cannot have, a value of the wrong type, an empty
        grid, or settings that contradict each other.
    """
    return parse_experiment(read_text(Path(path)), path, changes)


def parse_experiment(text: str, path: str | Path, changes: Sequence[str] = ()) -> Experiment:
    """As `read_experiment`, of a text that stands, or is to stand, in the file `path`."""
    file = Path(path)
    source = changed(Source(file, text), changes)
    top = Table(source, source.root(), "", _TOP)
    for key in ("model", "workloads"):
        if key not in top:
            top.complain(key, "is missing; see docs/experiment-file.md")
    name = checked_name(top, "name", file.stem)
    model = read_model(top)
    engine_table = top.table("engine", _ENGINE)
    lines: dict[str, int] = {}
    url = read_url(engine_table, lines)
    arguments = read_arguments(engine_table, lines)
    telemetry = top.table("telemetry", ("interval_s",))
    slos = read_slos(top, Slos())
    repeats = top.integer("repeats", 1)
    workloads = read_workloads(
        top, slos=slos, repeats=repeats, max_model_len=arguments.get("max_model_len"), lines=lines
    )
    profiles = read_profiles(top, arguments.get("max_model_len"))
    if url is not None:
        check_attached(top, engine_table, workloads, profiles)
    caching = _prefix_caching(top, engine_table, arguments, {w.data.kind for w in workloads if w.kind != "latency"})
    return Experiment(
        path=file,
        text=source.text,
        name=name,
        title=top.text("title", name) or name,
        model=model,
        workloads=workloads,
        engine=EngineSpec(
            args=arguments,
            env=read_environment(engine_table, lines),
            python=engine_table.text("python"),
            startup_deadline_s=engine_table.maybe_number("startup_deadline_s"),
            url=url,
            trace_dir=read_trace_dir(engine_table),
        ),
        profiles=profiles,
        prefix_caching=caching,
        server_runs=top.integer("server_runs", 1),
        seed=top.integer("seed", 0, at_least=0),
        telemetry_interval_s=telemetry.number("interval_s", 1.0),
        step_records=top.flag("step_records", True),
        point_deadline_s=top.number("point_deadline_s", 3600.0),
        lines=lines,
    )


def read_text(file: Path) -> str:
    """The text of a file of the user's.

    Raises
    ------
    InputError
        When it cannot be read, or is not UTF-8.
    """
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise InputError(f"cannot be read: {reason}", path=file) from error


def read_model(top: Table, key: str = "model") -> Model:
    """The model under `key`: an id, a folder, or a mapping that says which."""
    found = top.value(key)
    if isinstance(found, str):
        return _local_or_hub(top, key, found, {}, False)
    table = top.table(key, ("id", "path", "package", "served_name", "trust_remote_code"))
    given = [name for name in ("id", "path", "package") if name in table]
    if len(given) != 1:
        top.complain(key, "needs exactly one of id, path and package")
    name = table.text(given[0]) or ""
    trust = table.flag("trust_remote_code", False)
    served = {"served_name": table.text("served_name")} if "served_name" in table else {}
    if given == ["package"]:
        known = packaged_models()
        if name not in known:
            table.complain("package", f"is {name!r}; perflab knows {', '.join(sorted(known))}")
        return Model(name, "package", served.get("served_name") or known[name].served_name, trust)
    if given == ["id"]:
        return Model(name, "hub", served.get("served_name") or name, trust)
    return _local_or_hub(table, "path", name, served, trust, must_be_local=True)


def _local_or_hub(
    table: Table, key: str, name: str, served: dict[str, str | None], trust: bool, must_be_local: bool = False
) -> Model:
    folder = Path(name).expanduser()
    folder = folder if folder.is_absolute() else table.source.path.parent / folder
    if folder.is_dir():
        resolved = folder.resolve()
        return Model(str(resolved), "path", served.get("served_name") or resolved.name, trust)
    if must_be_local or name.startswith((".", "/", "~")) or name.count("/") > 1:
        table.complain(key, f"is {name!r}, and there is no such folder")
    return Model(name, "hub", served.get("served_name") or name, trust)


def read_arguments(engine: Table, lines: dict[str, int]) -> dict[str, Any]:
    """The mapping `args` of a table, names with underscores."""
    table = engine.table("args", None)
    arguments: dict[str, Any] = {}
    for given in table.nodes:
        name = given.lstrip("-").replace("-", "_")
        if name in _OURS or is_secret_name(name):
            advice = _OURS.get(name, "put it into the environment of perflab, so that no run records it")
            table.complain(given, f"cannot be set here: {advice}")
        if name in arguments:
            table.complain(given, f"is given twice, as {name} with '-' and with '_'")
        arguments[name] = _value(table, given)
        if inner := _secret_inside(arguments[name]):
            table.complain(given, f"holds {inner}, which looks like a secret: put it into the environment of perflab")
        lines[f"engine.args.{name}"] = table.lines[given]
    return arguments


def _value(table: Table, key: str) -> Any:
    found = table.value(key)
    if isinstance(found, list | dict) and not found:
        table.complain(key, "is empty; leave it out to get vLLM's default")
    return found


def _secret_inside(value: Any) -> str | None:
    """The first key within an argument that is named like a secret and has a text."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if isinstance(inner, str) and is_secret_name(str(key)):
            return str(key)
        if found := _secret_inside(inner):
            return found
    return None


def read_environment(engine: Table, lines: dict[str, int]) -> dict[str, str]:
    """The mapping `env` of a table."""
    table = engine.table("env", None)
    found: dict[str, str] = {}
    for name in table.nodes:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            table.complain(name, "is not the name of an environment variable")
        if is_secret_name(name):
            table.complain(name, "looks like a secret: set it in the shell, perflab passes it on and never records it")
        value = table.value(name)
        if isinstance(value, list | dict):
            table.complain(name, "must be one value")
        # An environment holds text; true and false mean what vLLM's own switches mean by them.
        found[name] = str(int(value)) if isinstance(value, bool) else str(value)
        lines[f"engine.env.{name}"] = table.lines[name]
    return found


def _prefix_caching(top: Table, engine: Table, arguments: dict[str, Any], kinds: set[str]) -> bool:
    said = top.flag("prefix_caching", False) if "prefix_caching" in top else None
    args = engine.table("args", None)
    for name, means in (("enable_prefix_caching", True), ("no_enable_prefix_caching", False)):
        if name not in arguments:
            continue
        key = next(given for given in args.nodes if given.lstrip("-").replace("-", "_") == name)
        value = arguments.pop(name)
        if not isinstance(value, bool):
            args.complain(key, "must be true or false")
        wanted = means == value
        if said is not None and said != wanted:
            args.complain(key, f"contradicts prefix_caching: {str(said).lower()}")
        said = wanted
    needs = "prefix_repetition" in kinds
    if needs and said is False:
        top.complain("prefix_caching", "is off, but a workload's data is prefix_repetition, which measures the cache")
    if needs and said is None and len(kinds) > 1:
        top.complain(
            "prefix_caching",
            "must be said: the workloads share a server, prefix_repetition wants the cache on and the others off",
        )
    return needs if said is None else said
