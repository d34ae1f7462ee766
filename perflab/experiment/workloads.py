"""The `workloads` of an experiment file -> `Workload` records."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from perflab.experiment.nodes import Table
from perflab.experiment.spec import Data, DataKind, Kind, Load, PromptRule, Slos, Workload

_WORKLOAD = (
    "name", "kind", "data", "api", "input_lens", "output_lens", "load", "num_prompts", "warmup_prompts", "repeats",
    "slos", "bench_args",
)  # fmt: skip
_DATA = {
    "random": ("range_ratio", "prefix_len"),
    "custom": ("path", "skip_chat_template"),
    "prefix_repetition": ("prefix_len", "suffix_len", "num_prefixes"),
    "timed_trace": (
        "path", "chunk_hash_size", "sec_multiplier", "label_timestamp", "label_input_length", "label_output_length",
        "label_hash_ids",
    ),
}  # fmt: skip
_DATA_KINDS = tuple(_DATA)
# vLLM's own defaults, said aloud, because the length of a prompt follows from them.
_DEFAULTS = {"prefix_repetition": {"prefix_len": 256, "suffix_len": 256, "num_prefixes": 10}}
# Lengths: what each kind of data needs (True), may have (None), or decides itself (False): input, output.
_LENGTHS: dict[str, tuple[bool | None, bool | None]] = {
    "random": (True, True),
    "custom": (False, None),
    "prefix_repetition": (False, True),
    "timed_trace": (False, False),
}
_RULE = ("per_concurrency", "seconds", "at_least", "at_most")
# One batch repeated, and one lot of prompts: what `vllm bench latency` and `throughput` count.
_OFFLINE_COUNT = {"latency": 10, "throughput": 200}


def read_workloads(
    top: Table, *, slos: Slos, repeats: int, max_model_len: Any, lines: dict[str, int]
) -> tuple[Workload, ...]:
    """All workloads; `slos` and `repeats` are the file's, which a workload may override."""
    found: list[Workload] = []
    for index, node in enumerate(top.sequence("workloads")):
        table = Table(top.source, node, f"workloads[{index}]", _WORKLOAD)
        one = _workload(table, f"w{index}", slos, repeats, lines)
        if any(one.name == other.name for other in found):
            table.complain("name", f"{one.name!r} is taken by another workload")
        _fits(table, one, max_model_len)
        found.append(one)
    return tuple(found)


def read_slos(table: Table, default: Slos) -> Slos:
    """The limits under `slos`; `default` where there are none."""
    return read_limits(table, "slos") if "slos" in table else default


def read_limits(table: Table, key: str) -> Slos:
    """The limits under a key."""
    limits = table.table(key, ("ttft_ms", "tpot_ms", "e2el_ms"))
    return Slos(*(limits.maybe_number(name) for name in ("ttft_ms", "tpot_ms", "e2el_ms")))


def _workload(table: Table, default_name: str, slos: Slos, repeats: int, lines: dict[str, int]) -> Workload:
    name = table.text("name", default_name) or default_name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._]{0,31}", name):
        # '-' separates the parts of a point's id.
        table.complain("name", f"is {name!r}; use letters, digits, '.' and '_' only, at most 32")
    kind = cast("Kind", table.choice("kind", "serve", ("serve", "latency", "throughput")))
    data = _data(table)
    if kind != "serve":
        _refuse(table, ("slos", "api"), f"is only for kind serve, this is {kind}")
        if data.kind not in ("random",):
            table.complain("data", f"must be random for kind {kind}")
    input_lens, output_lens = _lengths(table, data.kind)
    return Workload(
        name=name,
        kind=kind,
        data=data,
        input_lens=input_lens,
        output_lens=output_lens,
        loads=_loads(table, kind, data.kind),
        num_prompts=_rule(table, kind),
        warmup_prompts=table.integer("warmup_prompts", 0, at_least=0) if "warmup_prompts" in table else None,
        repeats=table.integer("repeats", repeats),
        slos=read_slos(table, slos) if kind == "serve" else Slos(),
        chat=table.choice("api", "completions", ("completions", "chat")) == "chat",
        bench_args=_bench_args(table, name, lines),
        line=table.node.start_mark.line + 1,
    )


def _refuse(table: Table, keys: tuple[str, ...], why: str) -> None:
    for key in keys:
        if key in table:
            table.complain(key, why)


def _data(table: Table) -> Data:
    if "data" not in table:
        return Data()
    if isinstance(table.value("data"), str):
        kind = cast("DataKind", table.choice("data", "random", _DATA_KINDS))
        if "path" in _DATA[kind]:
            table.complain("data", f"of kind {kind} needs a path: write `data: {{kind: {kind}, path: FILE}}`")
        return Data(kind, None, dict(_DEFAULTS.get(kind, {})))
    loose = table.table("data", None)
    kind = cast("DataKind", loose.choice("kind", "random", _DATA_KINDS))
    return _data_of(table.table("data", ("kind", *_DATA[kind])), kind)


def _data_of(table: Table, kind: DataKind) -> Data:
    options: dict[str, Any] = {}
    for key in _DATA[kind]:
        if key == "path" or key not in table:
            continue
        if key.startswith("label_"):
            options[key] = table.text(key)
        elif key == "skip_chat_template":
            options[key] = table.flag(key, False)
        elif key == "range_ratio":
            options[key] = table.number(key, 0.0, above=-1e-9)
            if options[key] >= 1:
                table.complain(key, "must be less than 1: lengths vary by this share up and down")
        elif key == "sec_multiplier":
            options[key] = table.number(key, 1.0)
        else:
            options[key] = table.integer(key, 1)
    path = None
    if "path" in _DATA[kind]:
        if "path" not in table:
            table.complain("path", f"is missing: data of kind {kind} comes from a file")
        path = Path(table.text("path") or "").expanduser()
        path = path if path.is_absolute() else table.source.path.parent / path
        if not path.is_file():
            table.complain("path", f"is {str(path)!r}, and there is no such file")
        path = path.resolve()
    return Data(kind, path, {**_DEFAULTS.get(kind, {}), **options})


def _lengths(table: Table, kind: DataKind) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    found: list[tuple[int | None, ...]] = []
    for key, needed in zip(("input_lens", "output_lens"), _LENGTHS[kind], strict=True):
        if needed is False and key in table:
            table.complain(key, f"cannot be set: data of kind {kind} decides it")
        if needed is True and key not in table:
            table.complain(key, f"is missing: data of kind {kind} needs lengths, for instance [128, 1024]")
        found.append(table.integers(key) if key in table else (None,))
    return found[0], found[1]


def _loads(table: Table, kind: Kind, data: DataKind) -> tuple[Load, ...]:
    if kind == "throughput" or data == "timed_trace":
        why = "the trace decides when requests arrive" if data == "timed_trace" else "all prompts are given at once"
        _refuse(table, ("load",), f"cannot be set: {why}")
        return (Load(),)
    if "load" not in table:
        table.complain(
            "load", "is missing: say concurrency, rate or staircase, for instance `load: {concurrency: [1, 8]}`"
        )
    load = table.table("load", ("concurrency", "rate", "staircase"))
    if not load.nodes:
        table.complain("load", "is empty: say concurrency, rate or staircase")
    if kind == "latency":
        _refuse(
            load, ("rate", "staircase"), "cannot be set for kind latency: its load is a batch of `concurrency` prompts"
        )
    if "rate" in load and "staircase" in load:
        load.complain("staircase", "and rate cannot both be given: a staircase is a list of rates")
    concurrency = load.integers("concurrency") if "concurrency" in load else (None,)
    rates: tuple[float | None, ...] = (None,)
    if "rate" in load:
        rates = tuple(None if math.isinf(rate) else rate for rate in load.numbers("rate"))
    elif "staircase" in load:
        rates = _staircase(load)
    return tuple(Load(concurrency=c, rate=r) for c, r in itertools.product(concurrency, rates))


def _staircase(load: Table) -> tuple[float, ...]:
    stairs = load.table("staircase", ("start", "stop", "steps", "spacing"))
    for key in ("start", "stop", "steps"):
        if key not in stairs:
            stairs.complain(key, "is missing: a staircase needs start, stop and steps")
    start, stop = stairs.number("start", 0.0), stairs.number("stop", 0.0)
    steps = stairs.integer("steps", 2, at_least=2)
    if stop <= start or math.isinf(stop):
        stairs.complain("stop", f"is {stop:g}; it must be more than start ({start:g}) and finite")
    shares = [index / (steps - 1) for index in range(steps)]
    if stairs.choice("spacing", "linear", ("linear", "geometric")) == "geometric":
        exact = [start * (stop / start) ** share for share in shares]
    else:
        exact = [start + (stop - start) * share for share in shares]
    return tuple(float(f"{rate:.4g}") for rate in exact)


def _rule(table: Table, kind: Kind) -> PromptRule:
    if "num_prompts" not in table:
        return PromptRule() if kind == "serve" else PromptRule(count=_OFFLINE_COUNT[kind])
    if isinstance(table.value("num_prompts"), dict):
        if kind != "serve":
            table.complain("num_prompts", f"must be a whole number for kind {kind}")
        rule = table.table("num_prompts", _RULE)
        default = PromptRule()
        found = replace(
            default,
            per_concurrency=rule.integer("per_concurrency", default.per_concurrency),
            seconds=rule.number("seconds", default.seconds),
            at_least=rule.integer("at_least", default.at_least),
            at_most=rule.integer("at_most", default.at_most),
        )
        if found.at_most < found.at_least:
            rule.complain("at_most", f"is {found.at_most}, less than at_least ({found.at_least})")
        return found
    return PromptRule(count=table.integer("num_prompts", 1))


def _bench_args(table: Table, name: str, lines: dict[str, int]) -> dict[str, Any]:
    given = table.table("bench_args", None)
    found: dict[str, Any] = {}
    for key in given.nodes:
        option = key.lstrip("-").replace("-", "_")
        found[option] = given.value(key)
        lines[f"workloads.{name}.bench_args.{option}"] = given.lines[key]
    return found


def _fits(table: Table, workload: Workload, max_model_len: Any) -> None:
    if not isinstance(max_model_len, int) or isinstance(max_model_len, bool):
        return
    stretch = 1 + float(workload.data.options.get("range_ratio", 0.0))
    for input_len, output_len in itertools.product(workload.input_lens, workload.output_lens):
        if workload.data.kind == "prefix_repetition":
            input_len = workload.data.options["prefix_len"] + workload.data.options["suffix_len"]
        total = math.floor((input_len or 0) * stretch) + math.floor((output_len or 0) * stretch)
        total += int(workload.data.options.get("prefix_len", 0)) if workload.data.kind == "random" else 0
        if total > max_model_len:
            table.complain(
                "input_lens" if "input_lens" in table else "output_lens",
                f"with output_lens reaches {total} tokens, over engine.args.max_model_len ({max_model_len})",
            )
