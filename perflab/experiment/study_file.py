"""A study file -> `Study`, by the machinery of experiment files: each complaint names the line it is about."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from perflab.experiment.changes import changed
from perflab.experiment.nodes import Source, Table, checked_name, did_you_mean, plain
from perflab.experiment.profiles import read_profiles
from perflab.experiment.read import read_arguments, read_environment, read_model, read_text
from perflab.experiment.spec import EngineSpec, Load, Model, Slos, Workload
from perflab.experiment.study import (
    ALGORITHMS,
    AccuracySpec,
    Algorithm,
    CalibrationSpec,
    KvSpec,
    Study,
    TaskSpec,
    TextSpec,
    Variant,
)
from perflab.experiment.workloads import read_limits, read_workloads
from perflab.knowledge.quantization_formats import Format, format_named, format_names

_TOP = (
    "name", "title", "model", "variants", "engine", "workloads", "repeats", "server_runs", "seed", "kv", "accuracy",
    "calibration", "slos", "profile", "telemetry", "point_deadline_s",
)  # fmt: skip
_VARIANT = ("name", "format", "label", "checkpoint", "algorithm", "args")
# What tells variants apart is theirs to say.
_VARIANTS_OWN = {
    "quantization": "a variant brings it: name a format, or give the variant `args`",
    "quantization_config": "a variant brings it: give the variant `args`",
    "kv_cache_dtype": "a variant brings it: name kv-fp8 or fp8-kv, or give the variant `args`",
    "kv_cache_memory_bytes": "use kv.pinned_bytes",
    "enable_prefix_caching": "a study measures without prefix caching",
}
_BYTES = re.compile(r"([\d.]+)\s*(B|[KMGT]B|[KMGT]iB)?", re.IGNORECASE)
_FACTORS = {"b": 1, **{f"{p}b": 1000 ** (i + 1) for i, p in enumerate("kmgt")},
            **{f"{p}ib": 1024 ** (i + 1) for i, p in enumerate("kmgt")}}  # fmt: skip


def read_study(path: str | Path, changes: Sequence[str] = ()) -> Study:
    """Read and check a study file.

    Parameters
    ----------
    changes
        Values to set over those of the file, `KEY=VALUE`; see `perflab.experiment.changes`.

    Raises
    ------
    InputError
        With the line: the file is not YAML, has a key it cannot have, a format that is not known, no baseline, or
        settings that contradict each other.
    """
    file = Path(path)
    source = changed(Source(file, read_text(file)), changes)
    top = Table(source, source.root(), "", _TOP)
    for key in ("model", "variants", "workloads"):
        if key not in top:
            top.complain(key, "is missing; see docs/quantization.md")
    model = read_model(top)
    lines: dict[str, int] = {}
    engine = _engine(top, lines)
    longest = engine.args.get("max_model_len")
    repeats = top.integer("repeats", 1)
    workloads = read_workloads(top, slos=Slos(), repeats=repeats, max_model_len=longest, lines=lines)
    _serve_only(top, workloads)
    read_profiles(top, longest)
    name = checked_name(top, "name", file.stem)
    return Study(
        path=file,
        text=source.text,
        name=name,
        title=top.text("title", name) or name,
        model=model,
        variants=_variants(top),
        engine=engine,
        workloads=workloads,
        workload_data=_workload_data(top, workloads),
        profile_data=tuple(plain(node) for node in top.sequence("profile")),
        repeats=repeats,
        server_runs=top.integer("server_runs", 1),
        seed=top.integer("seed", 0, at_least=0),
        telemetry_interval_s=top.table("telemetry", ("interval_s",)).number("interval_s", 1.0),
        point_deadline_s=top.number("point_deadline_s", 3600.0),
        kv=_kv(top, workloads),
        accuracy=_accuracy(top, longest),
        calibration=_calibration(top),
        slos=_slos(top),
    )


def _engine(top: Table, lines: dict[str, int]) -> EngineSpec:
    table = top.table("engine", ("args", "env", "python", "startup_deadline_s"))
    args = table.table("args", None)
    for given in args.nodes:
        if advice := _VARIANTS_OWN.get(given.lstrip("-").replace("-", "_").removeprefix("no_")):
            args.complain(given, f"cannot be set for all variants: {advice}")
    return EngineSpec(
        args=read_arguments(table, lines),
        env=read_environment(table, lines),
        python=table.text("python"),
        startup_deadline_s=table.maybe_number("startup_deadline_s"),
    )


def _serve_only(top: Table, workloads: tuple[Workload, ...]) -> None:
    for workload in workloads:
        if workload.kind != "serve":
            top.complain("workloads", f"{workload.name} is of kind {workload.kind}; a study measures a server")


def _variants(top: Table) -> tuple[Variant, ...]:
    found: list[Variant] = []
    for index, node in enumerate(top.sequence("variants")):
        one = _variant(top, node, index)
        if any(other.name == one.name for other in found):
            top.source.complain(node, f"variant {one.name!r} is there twice; give one of them another name")
        found.append(one)
    baselines = [one.name for one in found if one.format.name == "baseline"]
    if len(baselines) != 1:
        said = f"has {len(baselines)} ({', '.join(baselines)})" if baselines else "has none"
        top.complain("variants", f"needs one variant of format baseline to compare the others with; it {said}")
    return tuple(found)


def _variant(top: Table, node: yaml.Node, index: int) -> Variant:
    line = int(node.start_mark.line) + 1
    if isinstance(node, yaml.ScalarNode):
        name = str(plain(node))
        return Variant(name, _format(top.source, node, name), _format(top.source, node, name).label, line=line)
    table = Table(top.source, node, f"variants[{index}]", _VARIANT)
    if "name" not in table:
        table.complain("name", "is missing; or write the variant as the name of its format only")
    name = checked_name(table, "name", "")
    format_node = table.nodes.get("format")
    kind = _format(top.source, format_node or table.nodes["name"], table.text("format", name) or name)
    checkpoint = _checkpoint(table)
    if kind.how == "ready" and checkpoint is None and "checkpoint" in table:
        table.complain("checkpoint", "must name a folder or a Hugging Face id")
    return Variant(
        name=name,
        format=kind,
        label=table.text("label", kind.label) or kind.label,
        checkpoint=checkpoint,
        algorithm=_algorithm(table, kind, checkpoint),
        args=read_arguments(table, {}),
        line=line,
    )


def _format(source: Source, node: yaml.Node, name: str) -> Format:
    found = format_named(name)
    if found is None:
        near = did_you_mean(name, format_names())
        source.complain(node, f"{name!r} is no format of a variant{near} (a variant of your own needs name and format)")
    return found


def _checkpoint(table: Table) -> Model | None:
    return read_model(table, key="checkpoint") if "checkpoint" in table else None


def _algorithm(table: Table, kind: Format, checkpoint: Model | None) -> Algorithm | None:
    if "algorithm" not in table:
        return None
    if kind.how != "make" or checkpoint is not None:
        table.complain("algorithm", "is of no use: no checkpoint is made of this variant")
    found = table.choice("algorithm", "", ALGORITHMS)
    return next(one for one in ALGORITHMS if one == found)


def _workload_data(top: Table, workloads: tuple[Workload, ...]) -> tuple[Mapping[str, Any], ...]:
    """The workloads as plain data that an experiment file elsewhere can hold: paths are whole."""
    found: list[Mapping[str, Any]] = []
    for node, workload in zip(top.sequence("workloads"), workloads, strict=True):
        one = dict(plain(node))
        if workload.data.path is not None:
            one["data"] = {**one["data"], "path": str(workload.data.path)}
        found.append({**one, "name": workload.name})
    return tuple(found)


def _kv(top: Table, workloads: tuple[Workload, ...]) -> KvSpec:
    table = top.table("kv", ("pinned_bytes", "free", "free_loads", "free_memory_utilization", "free_server_runs"))
    pinned = _bytes(table, "pinned_bytes") if "pinned_bytes" in table else None
    free = table.flag("free", True)
    if pinned is None and not free:
        table.complain("free", "is false and pinned_bytes is not given, so nothing would be measured")
    for key in ("free_loads", "free_memory_utilization", "free_server_runs"):
        if key in table and not free:
            table.complain(key, "is of no use: kv.free is false")
    share = table.maybe_number("free_memory_utilization")
    if share is not None and share > 1:
        table.complain("free_memory_utilization", f"is {share:g}; it is a share of the memory, at most 1")
    loads: tuple[Load, ...] = ()
    if "free_loads" in table:
        loads = tuple(Load(concurrency=count) for count in table.integers("free_loads"))
        there = {load.concurrency for workload in workloads for load in workload.loads}
        if missing := [load.concurrency for load in loads if load.concurrency not in there]:
            table.complain("free_loads", f"has concurrency {missing[0]}, which no workload has")
    return KvSpec(
        pinned_bytes=pinned,
        free=free,
        free_loads=loads,
        free_memory_utilization=share,
        free_server_runs=table.integer("free_server_runs", 1) if "free_server_runs" in table else None,
    )


def _bytes(table: Table, key: str) -> int:
    found = table.value(key)
    if isinstance(found, int) and not isinstance(found, bool):
        return table.integer(key, 1)
    match = _BYTES.fullmatch(str(found).strip()) if isinstance(found, str) else None
    if match is None:
        table.complain(key, "must be a number of bytes, as 42949672960 or 40GiB")
    try:
        size = int(float(match[1]) * _FACTORS[(match[2] or "b").lower()])
    except ValueError:
        table.complain(key, f"is {found!r}; write it as 40GiB")
    if size < 1:
        table.complain(key, "must be more than 0")
    return size


def _text_spec(table: Table) -> TextSpec:
    if "text" not in table:
        return TextSpec()
    found = table.value("text")
    items = found if isinstance(found, list) else [found]
    if items == ["english"]:
        return TextSpec()
    paths: list[Path] = []
    for item in items:
        if not isinstance(item, str) or not item.strip():
            table.complain("text", "must be english, or paths of text files")
        path = Path(item).expanduser()
        path = path if path.is_absolute() else table.source.path.parent / path
        if not path.is_file():
            table.complain("text", f"names {item!r}, and there is no such file; `english` is what any machine has")
        paths.append(path.resolve())
    return TextSpec(False, tuple(paths))


def _accuracy(top: Table, longest: Any) -> AccuracySpec | None:
    if "accuracy" not in top:
        return None
    if plain(top.nodes["accuracy"]) is False:
        return None
    table = top.table("accuracy", ("text", "tokens", "window", "top_k", "kv_prefixes", "kv_documents", "tasks"))
    default = AccuracySpec()
    window = table.integer("window", default.window, at_least=8)
    if isinstance(longest, int) and window > longest:
        if "window" in table:
            table.complain("window", f"is {window}, over engine.args.max_model_len ({longest})")
        window = longest
    prefixes = table.integers("kv_prefixes", at_least=8) if "kv_prefixes" in table else default.kv_prefixes
    if isinstance(longest, int):
        if "kv_prefixes" in table and max(prefixes) >= longest:
            table.complain("kv_prefixes", f"reaches {max(prefixes)}; with the token asked for it has to fit {longest}")
        prefixes = tuple(one for one in prefixes if one < longest)
    return AccuracySpec(
        text=_text_spec(table),
        tokens=table.integer("tokens", default.tokens),
        window=window,
        top_k=_top_k(table),
        kv_prefixes=prefixes,
        kv_documents=table.integer("kv_documents", default.kv_documents),
        tasks=_tasks(table),
    )


def _top_k(table: Table) -> int | None:
    if "top_k" not in table or table.value("top_k") == "all":
        return None
    if isinstance(table.value("top_k"), str):
        table.complain("top_k", "must be `all`, or how many candidates of each token to compare")
    return table.integer("top_k", 1)


def _tasks(table: Table) -> tuple[TaskSpec, ...]:
    node = table.nodes.get("tasks")
    if node is None:
        return ()
    nodes = [node] if isinstance(node, yaml.ScalarNode) and plain(node) is not None else table.sequence("tasks")
    found: list[TaskSpec] = []
    for index, item in enumerate(nodes):
        one = _task(table, item, index)
        if any(other.name == one.name for other in found):
            table.source.complain(item, f"task {one.name!r} is there twice; give one of them another name")
        found.append(one)
    return tuple(found)


def _task(table: Table, node: yaml.Node, index: int) -> TaskSpec:
    where = f"{table.place('tasks')}[{index}]"
    if isinstance(node, yaml.ScalarNode):
        name = plain(node)
        if not isinstance(name, str) or not name.strip():
            table.source.complain(node, f"{where} must be the name of a task of lm-eval, as arc_easy")
        return TaskSpec(name.strip())
    one = Table(table.source, node, where, ("name", "path", "limit", "shots"))
    given = one.text("name")
    if given is None:
        one.complain("name", "is missing: the name of a task of lm-eval, or of your own at `path`")
    return TaskSpec(
        name=given.strip(),
        path=_task_path(one),
        limit=one.integer("limit", 1) if "limit" in one else None,
        shots=one.integer("shots", 0, at_least=0) if "shots" in one else None,
    )


def _task_path(table: Table) -> Path | None:
    given = table.text("path")
    if given is None:
        return None
    path = Path(given).expanduser()
    path = path if path.is_absolute() else table.source.path.parent / path
    if not path.exists():
        table.complain("path", f"names {given!r}, and there is no such file or folder")
    if path.is_file() and path.suffix not in (".yaml", ".yml"):
        table.complain("path", f"names {given!r}; a task is a .yaml file, or in a folder that holds it")
    return path.resolve()


def _calibration(top: Table) -> CalibrationSpec:
    table = top.table("calibration", ("text", "samples", "length"))
    default = CalibrationSpec()
    return CalibrationSpec(
        text=_text_spec(table),
        samples=table.integer("samples", default.samples),
        length=table.integer("length", default.length, at_least=8),
    )


def _slos(top: Table) -> dict[str, Slos]:
    table = top.table("slos", ("interactive", "batch"))
    return {name: read_limits(table, name) for name in table.nodes}
