"""What `perflab quantize show` prints: each model and machine with its table, then why, then what to take."""

from __future__ import annotations

from collections.abc import Sequence

from perflab import units
from perflab.analysis.quantization import words
from perflab.analysis.quantization.estimate import Estimate
from perflab.analysis.quantization.task_scores import TaskScore
from perflab.analysis.quantization.tradeoffs import BASELINE, Comparison, Kv, Memory, Variant
from perflab.messages import say
from perflab.tasks.quantize.tradeoffs import TradeoffReport
from perflab.terminal.text import count, number, table, wrapped

_RATE, _TPOT = "output_tokens_per_s", "tpot_p50_ms"


def tradeoffs(report: TradeoffReport) -> str:
    """Tables and sentences; what is not there is said where it would stand."""
    blocks = [_comparison(one) for one in report.comparisons]
    blocks.append(_recommendations(report))
    blocks.append(_claims(report))
    return "\n\n".join(block for block in blocks if block)


def _comparison(one: Comparison) -> str:
    parts = [f"{one.place.source or 'runs'}: {one.place.label}"]
    parts += [
        block for block in (_memory(one), _accuracy(one), _tasks(one), *(_speed(one, kv) for kv in one.kvs)) if block
    ]
    sentences = [
        *words.duel_sentences(one), *words.end_sentences(one), *words.split_sentences(one),
        *(line for variant in one.variants if variant.name != BASELINE for line in words.reason_sentences(variant)),
    ] if one.has_speed else []  # fmt: skip
    if sentences:
        parts.append("Why\n" + "\n".join(_line(text) for text in sentences))
    if one.missing:
        parts.append("Not known\n" + "\n".join(_line(text) for text in one.missing))
    return "\n\n".join(parts)


def _line(text: str) -> str:
    return wrapped(text.replace("**", "").replace("`", ""), "  ", "    ")


def _memory(one: Comparison) -> str:
    rows = [_memory_row(variant, memory) for variant in one.variants for memory in variant.memory]
    if not rows:
        return ""
    head = ["variant", "KV", "weights GiB", "predicted", "KV GiB", "KV tokens", "predicted", "at once", "other GiB"]
    return "Memory of a GPU, as vLLM's log has it\n" + table(head, rows, left=2)


def _memory_row(variant: Variant, one: Memory) -> list[str]:
    return [
        variant.label, one.kv, _gib(one.weights_bytes), _gib(one.predicted_weights_bytes), _gib(one.kv_bytes),
        count(one.kv_tokens), count(one.predicted_kv_tokens), number(one.max_concurrency, 1), _gib(one.other_bytes),
    ]  # fmt: skip


def _gib(size: int | None) -> str:
    return "-" if size is None else f"{units.gib(size):.2f}"


def _accuracy(one: Comparison) -> str:
    rows = []
    for variant in one.variants:
        found = variant.accuracy
        if found is None:
            continue
        perplexity = "-" if found.perplexity is None else f"{found.perplexity.value:.3f}"
        rows.append([
            variant.label, perplexity,
            "-" if found.perplexity_ratio is None else words.rise(found.perplexity_ratio),
            "-" if found.agreement is None else words.shares(found.agreement),
            "-" if found.kl is None else f"{'>= ' if found.kl_is_lower_bound else ''}{_kl(found.kl)}",
            count(found.tokens), found.executed or "-",
        ])  # fmt: skip
    if not rows:
        return ""
    head = ["variant", "perplexity", "rise", "same top token", "KL nats/token", "tokens", "executed by"]
    notes = dict.fromkeys(note for v in one.variants if v.accuracy for note in v.accuracy.notes)
    return "\n".join(["Accuracy against the baseline", table(head, rows), *(_line(note) for note in notes)])


def _tasks(one: Comparison) -> str:
    """Tasks of lm-eval; the baseline's own rows only where nothing is compared with it."""
    scored = [(variant, task) for variant in one.variants if variant.accuracy for task in variant.accuracy.tasks]
    shown = [pair for pair in scored if pair[0].name != BASELINE or pair[1].failed] or scored
    if not shown:
        return ""
    head = ["variant", "task", "metric", "documents", "baseline", "score", "difference", "lost", "won", "verdict"]
    rows = [_task_row(variant, task) for variant, task in shown]
    failed = dict.fromkeys(task.failed for _, task in shown if task.failed)
    notes = dict.fromkeys(f"{task.name}: {note}" for _, task in shown for note in task.notes)
    title = "Tasks of lm-eval, paired with the baseline by document (95 % interval over documents)"
    return "\n".join([title, table(head, rows, left=3), *(_line(text) for text in (*failed, *notes))])


def _task_row(variant: Variant, one: TaskScore) -> list[str]:
    return [
        variant.label, one.name, one.metric or "-", count(one.documents),
        number(None if one.baseline is None else one.baseline.value, 3),
        number(None if one.value is None else one.value.value, 3),
        "-" if one.difference is None else words.difference(one.difference), count(one.lost), count(one.won),
        words.task_word(one),
    ]  # fmt: skip


def _kl(one: Estimate) -> str:
    if one.low is None or one.high is None:
        return f"{one.value:.4f}"
    return f"{one.value:.4f} ({one.low:.4f} to {one.high:.4f})"


def _speed(one: Comparison, kv: Kv) -> str:
    points = list(dict.fromkeys(
        speed.point for variant in one.variants for speed in variant.speed if speed.kv == kv
    ))  # fmt: skip
    points.sort(key=lambda point: next(
        s.load if s.load is not None else float("inf") for v in one.variants for s in v.speed if s.point == point
    ))  # fmt: skip
    rows = [row for point in points for variant in one.variants if (row := _speed_row(variant, kv, point)) is not None]
    head = ["at", "variant", "output tok/s", "x baseline", "TPOT p50 ms", "x baseline", "TTFT p99", "runs", "verdict"]
    title = f"Speed, {say(f'tradeoffs.kv.{kv}')} (x above 1 is faster; 95 % interval over server runs)"
    return f"{title}\n{table(head, rows, left=2)}"


def _speed_row(variant: Variant, kv: Kv, point: str) -> list[str] | None:
    mine = {one.metric: one for one in variant.speed if one.kv == kv and one.point == point}
    rate, tpot, ttft = (mine.get(name) for name in (_RATE, _TPOT, "ttft_p99_ms"))
    if rate is None:
        return None
    return [
        point, variant.label, number(rate.value.value, 0), "-" if rate.gain is None else words.factor(rate.gain),
        "-" if tpot is None else number(tpot.value.value, 2),
        "-" if tpot is None or tpot.gain is None else words.factor(tpot.gain),
        "-" if ttft is None else number(ttft.value.value, 0), str(rate.value.n), rate.verdict or "",
    ]  # fmt: skip


def _recommendations(report: TradeoffReport) -> str:
    if not report.recommendations:
        return ""
    lines = ["What to take"]
    last = None
    for place, one in report.recommendations:
        lines += [] if place == last else [f"  {place.source or 'runs'}: {place.label}"]
        last = place
        lines += [wrapped(text.replace("**", ""), "    ", "      ") for text in words.recommendation_sentences(one)]
    return "\n".join(lines)


def _claims(report: TradeoffReport) -> str:
    measured: Sequence[list[str]] = [
        [one.claim.text, say(f"tradeoffs.claim.{one.verdict}"), words.claim_measured(one)]
        for one in report.claims
        if one.seen
    ]
    if not measured:
        return ""
    return "Claims of the guide that something here was measured against\n" + "\n".join(
        wrapped(f"{text} {verdict}: {seen}", "  ", "    ") for text, verdict, seen in measured
    )
