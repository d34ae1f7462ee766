"""`perflab quantize check`: did the quantization that was asked for take effect? By a log, a trace, a run, a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from perflab.analysis.kernel_names import short_kernel_name
from perflab.analysis.kernels import categorize
from perflab.analysis.model.quantization import Quantization, quantization_of, with_settings
from perflab.analysis.model.shape import DTYPE_BITS, ModelShape, model_shape
from perflab.analysis.model.workload import split_of, workload
from perflab.analysis.quantization.effect import Effect, EffectFacts, LogRemark, parameters_of, took_effect
from perflab.analysis.quantization.memory import predicted_memory, quantization_of_format
from perflab.analysis.quantization.recognised import recognised
from perflab.errors import InputError
from perflab.knowledge.quantization_formats import Format, capability_of, format_named
from perflab.knowledge.quantization_log import quantization_lines
from perflab.knowledge.quantized_kernels import quantized_kernels
from perflab.messages import say
from perflab.read.files import sniff
from perflab.read.log_lines import log_lines
from perflab.read.server_log import ServerLog, read_server_log
from perflab.runs import Engine, Run, is_run, open_run
from perflab.tasks.find import find_runs
from perflab.tasks.model_config import config_beside, config_of, run_config
from perflab.tasks.traces import PassSource, all_sources

_MATMULS = ("gemm", "moe")
_SHOWN = 3
_SEVERAL = ("compressed", "modelopt", "quark")
_PLAIN = ("", "none", "null", "auto")


@dataclass(frozen=True)
class CheckReport:
    """The answers, one an engine."""

    effects: tuple[Effect, ...]

    @property
    def ok(self) -> bool:
        """Whether everything that was asked for took effect; what cannot be told did not."""
        return all(one.ok for one in self.effects)

    def to_json(self) -> dict[str, Any]:
        """The document of `perflab quantize check --json`."""
        return {"schema": 1, "ok": self.ok, "checks": [one.to_json() for one in self.effects]}


def check(
    paths: Sequence[str | Path], *, asked: str | None = None, config: Mapping[str, Any] | None = None
) -> CheckReport:
    """Whether quantizations took effect.

    Parameters
    ----------
    paths
        Server logs, traces, run directories (or names of recorded ones), folders of studies.
    asked
        A format, as a study names it, that counts instead of what logs and configs say was asked for.
    config
        The model's config.json, for logs that have none beside them.

    Raises
    ------
    InputError
        When a path is none of these, or the format is not known.
    """
    wanted = None
    if asked is not None and (wanted := format_named(asked)) is None:
        raise InputError(say("quantize.no_format", name=asked))
    return CheckReport(tuple(took_effect(facts) for path in paths for facts in _facts(path, config, wanted)))


def run_effect(run: Run, *, traces: bool = True) -> Effect | None:
    """The answer for a run; None where no quantization was asked for and the log has nothing to say."""
    config = run_config(run)
    settings = run.manifest.engine.settings
    # Reading a log takes its time: not where settings and config are known and ask for nothing.
    if bool(settings) and config is not None and not _asks(settings, config):
        return None
    facts = run_facts(run, traces=traces)
    if facts.asked is None and facts.kv_asked is None and not facts.remarks:
        return None
    return took_effect(facts)


def _asks(settings: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether settings or a config ask for anything."""
    if with_settings(quantization_of(config.get("quantization_config")), settings) is not None:
        return True
    return _kv_asked(settings) is not None or str(settings.get("quantization") or "").lower() not in _PLAIN


def run_facts(run: Run, *, traces: bool = True, wanted: Format | None = None) -> EffectFacts:
    """What a run tells of its quantization; `traces` whether its traces are read for it."""
    config = run_config(run)
    log = run.file(run.manifest.log) if run.manifest.log else None
    gpus = run.manifest.hardware.gpus
    capability = capability_of(gpus[0].name) if gpus else None
    facts = engine_facts(run.manifest.title, run.manifest.engine, config, log, wanted=wanted, capability=capability)
    measured = [one for one in run.manifest.profiles if one.kind == "torch" and one.role == "measured" and one.traces]
    if traces and facts.asked is not None and measured:
        facts = with_trace(facts, all_sources([run.path])[0], config, wanted)
    return facts


def engine_facts(
    title: str,
    engine: Engine,
    config: Mapping[str, Any] | None,
    log: Path | None,
    *,
    wanted: Format | None = None,
    capability: int | None = None,
) -> EffectFacts:
    """What an engine's settings, its model's config and its log tell.

    Parameters
    ----------
    wanted
        A format that counts as asked for, whatever settings and config say.
    capability
        Compute capability of the GPU, which decides how some formats are kept in memory; None where not known.
    """
    told = _log(log)
    settings = {**(dict(told.settings) if told else {}), **{k: v for k, v in engine.settings.items() if v is not None}}
    given = dict(told.non_default_args) if told else {}
    settings.setdefault("kv_cache_memory_bytes", given.get("kv_cache_memory_bytes"))
    for name in ("quantization", "kv_cache_dtype"):
        if str(settings.get(name) or "").lower() in _PLAIN and given.get(name):
            settings[name] = given[name]
    found = with_settings(quantization_of((config or {}).get("quantization_config")), settings)
    setting = str(settings.get("quantization") or "").lower()
    if wanted is not None:
        found = quantization_of_format(wanted)
        settings["kv_cache_dtype"] = wanted.kv or "auto"
        setting = ""
    asked = _named(found) if found is not None else setting if setting not in _PLAIN else None
    facts = EffectFacts(
        run=title,
        engine=engine,
        asked=asked,
        kv_asked=_kv_asked(settings),
        log=told is not None,
        log_kernels=told.quantization_kernels if told else (),
        remarks=log_remarks(log) if log is not None else (),
        ended=told.error if told is not None and not told.is_ready else None,
    )
    kind = wanted or format_named(recognised(config, settings).name)
    return _with_memory(facts, told, config, settings, found, kind, capability)


def _named(found: Quantization) -> str:
    """A method by its name; of one that holds weights of many kinds, with what they are."""
    if not any(word in found.method for word in _SEVERAL):
        return found.method
    return f"{found.method} ({found.activations or f'w{found.weight_bits}a16'})"


def _log(path: Path | None) -> ServerLog | None:
    try:
        return None if path is None else read_server_log(path)
    except InputError:
        return None


def _kv_asked(settings: Mapping[str, Any]) -> str | None:
    for name in ("kv_cache_dtype", "cache_dtype"):
        said = str(settings.get(name) or "auto").lower().removeprefix("torch.")
        if said not in (*_PLAIN, *DTYPE_BITS):
            return said
    return None


def _with_memory(
    facts: EffectFacts,
    log: ServerLog | None,
    config: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    found: Quantization | None,
    kind: Format | None,
    capability: int | None,
) -> EffectFacts:
    """What the log says of memory beside what the config predicts."""
    if log is None:
        return facts
    sizes = log.memory.groupby("component")["bytes"]
    weights, cache = (_size(sizes.max(), "weights"), _size(sizes.min(), "kv_cache"))
    shape = model_shape(config) if config else None
    if isinstance(shape, ModelShape):
        split = split_of(settings)
        plain = workload(replace(shape, quantization=None), split, {**settings, "kv_cache_dtype": "auto"})
        mine = workload(replace(shape, quantization=found), split, settings)
        predicted = mine.weight_bytes
        if kind is not None:
            # As `perflab quantize plan` predicts it, with what kernels unpack.
            predicted = predicted_memory(kind, shape, settings, capability=capability).weights_bytes
        given = settings.get("kv_cache_memory_bytes")
        cache = cache or (given if isinstance(given, int) and given > 0 else None)
        per_token = cache / log.kv_cache_tokens if cache and log.kv_cache_tokens else None
        # Layers that look back at a window only do not keep every token, so that bytes a token mean something else.
        per_token = None if shape.sliding_window else per_token
        return replace(
            facts,
            weights_bytes=weights,
            predicted_bytes=predicted if found is not None else None,
            sixteen_bytes=plain.weight_bytes,
            kv_token_bytes=per_token,
            kv_predicted=mine.kv_bytes_per_token,
            kv_sixteen=plain.kv_bytes_per_token,
        )
    count = parameters_of(str(log.model or facts.engine.model or ""))
    if count is None:
        return replace(facts, weights_bytes=weights)
    split = split_of(settings)
    return replace(
        facts, weights_bytes=weights, sixteen_bytes=2 * count / split.tensor / split.pipeline, sixteen_by_name=True
    )


def _size(sizes: pd.Series, component: str) -> int | None:
    return int(sizes[component]) if component in sizes.index else None


def with_trace(
    facts: EffectFacts, source: PassSource, config: Mapping[str, Any] | None = None, wanted: Format | None = None
) -> EffectFacts:
    """With the matmul kernels of a trace."""
    tables = [categorize(trace.kernels) for trace in source.traces() if trace.has_gpu]
    parts = [t[t["category"].isin(_MATMULS) & (t["kind"] == "kernel")][["name", "dur_ns"]] for t in tables]
    work = pd.concat(parts) if parts else pd.DataFrame({"name": [], "dur_ns": []})
    if work.empty:
        return facts
    totals = work.groupby("name", observed=True)["dur_ns"].sum().sort_values(ascending=False)
    names = [str(name) for name in totals.index]
    pattern = quantized_kernels(kernel_method(facts.asked, config, source.engine, wanted)) if facts.asked else None
    mine = [name for name in names if pattern is not None and pattern.search(name)]
    shown = tuple(dict.fromkeys(short_kernel_name(name) for name in (mine or names)))[:_SHOWN]
    return replace(facts, traced=None if pattern is None else bool(mine), traced_names=shown)


def kernel_method(asked: str, config: Mapping[str, Any] | None, engine: Engine, wanted: Format | None = None) -> str:
    """A method as `quantized_kernels` knows it: what compressed-tensors and the like hold follows from the config."""
    if wanted is not None and wanted.weights is not None:
        return wanted.activations or f"w{wanted.weights.bits}a16"
    found = with_settings(quantization_of((config or {}).get("quantization_config")), engine.settings)
    if found is None or not any(word in asked for word in _SEVERAL):
        return asked
    return found.activations or f"w{found.weight_bits}a16"


def log_remarks(path: Path) -> tuple[LogRemark, ...]:
    """Lines of a log that say how a quantization runs, each kind once."""
    found: dict[tuple[str, str], LogRemark] = {}
    for line in log_lines(path):
        for kind in quantization_lines():
            if match := kind.regex.search(line.text):
                what = str(match.groupdict().get("what") or "")
                # Layers are many; the first stands for all.
                key = (kind.name, "" if kind.name == "layers" else what)
                known = found.get(key)
                found[key] = (
                    LogRemark(kind.name, kind.severity, what, line.number)
                    if known is None
                    else replace(known, count=known.count + 1)
                )
    return tuple(found.values())


def _facts(path: str | Path, config: Mapping[str, Any] | None, wanted: Format | None) -> list[EffectFacts]:
    place = Path(path)
    if place.is_dir() and not is_run(place) and (place / "speed").is_dir():
        runs = [open_run(one) for one in sorted((place / "speed").iterdir()) if is_run(one)]
        if not runs:
            raise InputError(say("quantize.nothing_measured"), path=place)
        return [run_facts(run, wanted=wanted) for run in runs]
    if place.is_file() and sniff(place) == "server_log":
        return [engine_facts(str(path), Engine(), config or config_beside([place]), place, wanted=wanted)]
    if place.is_file():
        sources = all_sources([place])
        if not sources:
            raise InputError(say("quantize.no_evidence"), path=place)
        return [_trace_facts(source, config, wanted) for source in sources]
    return [run_facts(run, wanted=wanted) for run in find_runs(str(path))]


def _trace_facts(source: PassSource, config: Mapping[str, Any] | None, wanted: Format | None) -> EffectFacts:
    """A trace alone: what was asked for is what a config beside it says."""
    told = config if config is not None else config_of(source)
    return with_trace(engine_facts(source.run, source.engine, told, None, wanted=wanted), source, told, wanted)
