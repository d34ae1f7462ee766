"""What `perflab quantize` prints: the plan, the outcome of a visit, whether a quantization took effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from perflab import units
from perflab.analysis.quantization.effect import Effect
from perflab.analysis.quantization.memory import PredictedMemory, difference
from perflab.analysis.quantization.suitability import Machine
from perflab.experiment.study import KvMode
from perflab.messages import say
from perflab.runs import Run
from perflab.tasks.quantize.check import CheckReport
from perflab.tasks.quantize.make import Made
from perflab.tasks.quantize.merging import Merged
from perflab.tasks.quantize.plan import StudyPlan, VariantPlan
from perflab.tasks.quantize.run import Outcome
from perflab.terminal.text import minutes, table, wrapped

_STATES = {"fits": "fits", "remark": "see below", "refused": "refused"}


def quantize_plan(plan: StudyPlan) -> str:
    """Variants with what they need and take, why some are refused, and the servers that will be started."""
    study, version = plan.study, plan.version
    parts = [
        f"{study.title}: {len(plan.variants)} variants of {study.model.served_name} on {_machine(plan.machine)}, "
        f"vLLM {version or 'of any version'}"
    ]
    head = ["variant", "made", "engine arguments", "fits", *_memory_head(plan)]
    rows = [[*_words(one), *_memory_cells(plan, one)] for one in plan.variants]
    parts.append(table(head, rows, left=4))
    if any(one.memory for one in plan.variants):
        parts.append(
            "  of one GPU, by the config: weights as loaded, tokens its KV cache holds"
            if plan.machine.kind == "gpu"
            else "  by the config: weights as loaded, tokens the KV cache holds"
        )
    if not plan.knows_model:
        parts.append(wrapped(say("quantize.no_config", name=study.model.served_name), "  "))
    told = [
        wrapped(f"{one.variant.name}: {sentence}", "  ", "      ")
        for one in plan.variants
        for sentence in (*one.suitability.reasons, *one.suitability.remarks)
    ]
    parts += ["\n".join(["What to know", *told])] if told else []
    parts += [_reported(plan)] if any(one.reported for one in plan.variants) else []
    parts.append(_servers(plan))
    return "\n\n".join(parts)


def _machine(machine: Machine) -> str:
    if machine.kind == "cpu":
        return f"a CPU ({machine.name})" if machine.name else "a CPU"
    size = "" if machine.gpu_bytes is None else f" of {units.show_bytes(machine.gpu_bytes)}"
    return f"{machine.gpus} x {machine.name}{size}"


def _words(one: VariantPlan) -> list[str]:
    args = {} if one.args is None else dict(one.args)
    said = " ".join(f"{name}={value}" for name, value in args.items()) or "-"
    return [one.variant.name, one.made, said, _STATES[one.suitability.state]]


def _memory_head(plan: StudyPlan) -> list[str]:
    names = {"pinned": "tokens, pinned", "free": "tokens, free"}
    return ["weights", "of 16 bit", *(names[mode] for mode in plan.study.kv.modes)]


def _memory_cells(plan: StudyPlan, one: VariantPlan) -> list[str]:
    first: PredictedMemory | None = next(iter(one.memory.values()), None)
    if first is None:
        return ["-", "-", *("-" for _ in plan.study.kv.modes)]
    share = units.show_share(first.weights_bytes / first.baseline_bytes)
    return [units.show_bytes(first.weights_bytes), share, *(_tokens(one.memory, mode) for mode in plan.study.kv.modes)]


def _tokens(memory: Mapping[KvMode, PredictedMemory], mode: KvMode) -> str:
    found = memory.get(mode)
    return "-" if found is None or found.kv_tokens is None else f"{found.kv_tokens:,}"


def _reported(plan: StudyPlan) -> str:
    """What vLLM said of memory beside what the config predicts."""
    rows = []
    for one in plan.variants:
        for mode, said in one.reported.items():
            ours = one.memory.get(mode)
            pairs = (
                (ours.weights_bytes if ours else None, said.weights_bytes, units.show_bytes),
                (ours.kv_tokens if ours else None, said.kv_tokens, lambda n: f"{n:,.0f}"),
                (ours.max_concurrency if ours else None, said.max_concurrency, lambda n: f"{n:,.1f}"),
            )
            rows.append([f"{one.variant.name}-{mode}", *(cell for pair in pairs for cell in _beside(*pair))])
    head = ["run", "weights", "said", "diff", "tokens", "said", "diff", "requests", "said", "diff"]
    return "\n".join(
        ["Predicted, and what vLLM said of it (requests: of the longest length at once)", table(head, rows)]
    )


def _beside(ours: float | None, theirs: float | None, shown: Callable[[float], str]) -> list[str]:
    off = difference(ours, theirs)
    return [
        "-" if ours is None else shown(ours),
        "-" if theirs is None else shown(theirs),
        "-" if off is None else f"{off:+.1%}".replace("%", " %"),
    ]


def _servers(plan: StudyPlan) -> str:
    found = plan.schedule
    head = f"{len(found.jobs)} servers to start, about {minutes(found.estimate_s)} one after the other"
    lines = [head + (f"; {found.done} are done" if found.done else "")]
    rows = [
        [job.name, str(len(job.points)), "yes" if job.profiles else "", minutes(job.estimate_s)] for job in found.jobs
    ]
    lines += [table(["server", "points", "profile", "about"], rows)] if rows else []
    lines += [wrapped(f"{name}: {why}", "  ", "      ") for name, why in {**found.refused, **found.given_up}.items()]
    return "\n".join(lines)


def quantize_outcome(outcome: Outcome) -> str:
    """What a visit measured, what failed, what is left."""
    lines = [f"{outcome.folder}: {len(outcome.did)} servers measured"]
    lines += [f"  measured: {', '.join(outcome.did)}"] if outcome.did else []
    lines += [f"  left out: {name}: {why}" for name, why in outcome.refused.items()]
    lines += [f"  failed: {name}: {why}" for name, why in outcome.failed.items()]
    if outcome.left:
        lines.append(f"  left: {len(outcome.left)} servers, about {minutes(outcome.left_s)}; the same command goes on")
    lines += [f"  note: {note}" for note in outcome.notes]
    return "\n".join([*lines, *_runs(outcome.runs)])


_ANSWERS = {
    "yes": "took effect",
    "no": "DID NOT TAKE EFFECT",
    "unknown": "cannot be told",
    "not_asked": "not asked for",
}


def quantize_check(report: CheckReport) -> str:
    """Each engine: what was asked, the answer, the evidence, and what the log says besides."""
    return "\n\n".join(_effect(one) for one in report.effects)


def _effect(one: Effect) -> str:
    lines = [one.run]
    lines.append(f"  weights: {one.asked or 'no quantization'}: {_ANSWERS[one.answer]}")
    if one.kv_asked is not None:
        lines.append(f"  KV cache: {one.kv_asked}: {_ANSWERS[one.kv_answer]}")
    lines += [wrapped(text, "    ") for text in one.evidence]
    for found in one.findings:
        mark = "info" if found.severity == "info" else "WARN" if found.severity == "warning" else "FAIL"
        lines.append(wrapped(f"{found.title}. {found.change}", f"  {mark}  ", " " * 8))
    return "\n".join(lines)


def quantize_made(made: Made) -> str:
    """Which checkpoints were made, which were there, and which could not be."""
    rows = [[name, "made", str(path)] for name, path in made.made.items()]
    rows += [[name, "was there", str(path)] for name, path in made.there.items()]
    rows += [[name, "failed", why] for name, why in made.failed.items()]
    if not rows:
        return "No variant of this study needs a checkpoint to be made."
    return table(["variant", "checkpoint", ""], rows, left=3)


def quantize_merged(merged: Merged) -> str:
    """What was taken from where, and the runs there are now."""
    lines = [f"{merged.folder}: {len(merged.taken)} servers taken, {len(merged.there)} were there"]
    lines += [f"  {old} -> {new}" for old, new in merged.taken.items()]
    lines += [f"  {name}" for name in merged.others]
    return "\n".join([*lines, *_runs(merged.runs)])


def _runs(runs: Sequence[Run]) -> list[str]:
    return [
        f"  {run.path.name}: {run.manifest.status}, "
        f"{sum(point.status == 'complete' for point in run.manifest.points)} points"
        for run in runs
    ]
