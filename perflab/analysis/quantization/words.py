"""Trade-offs in sentences, computed from the figures: for terminal, notebook and report alike."""

from __future__ import annotations

from collections.abc import Sequence

from perflab import units
from perflab.analysis.compare.findings import category_word, signed_time
from perflab.analysis.quantization.claims import Confronted, Seen
from perflab.analysis.quantization.crossing import Crossing
from perflab.analysis.quantization.estimate import Estimate
from perflab.analysis.quantization.recommend import Candidate, Recommendation
from perflab.analysis.quantization.task_scores import TaskScore
from perflab.analysis.quantization.tradeoffs import BASELINE, Accuracy, Comparison, Duel, Ends, KernelPart, Variant
from perflab.knowledge.matmul_kernels import matmul_of_log
from perflab.messages import say

_METRICS = {"output_tokens_per_s": "throughput", "tpot_p50_ms": "TPOT"}
_FLOOR = 0.02
"""Parts of a step that changed by less than this share of it are not told."""
_MOST_PARTS = 4


def factor(one: Estimate) -> str:
    """`1.38`, or `1.38 (1.35 to 1.41)`."""
    return (
        f"{one.value:.2f}"
        if one.low is None or one.high is None
        else f"{one.value:.2f} ({one.low:.2f} to {one.high:.2f})"
    )


def load_word(load: float | None, point: str = "") -> str:
    """`32 at once`; a rate by its point."""
    return point.rpartition(" ")[2] if load is None else f"{load:g} at once"


def metric_name(metric: str) -> str:
    """`throughput`, `TPOT`."""
    return _METRICS.get(metric, metric)


def duel_sentences(comparison: Comparison) -> list[str]:
    """Where 4-bit weights beat FP8 and where not: by KV mode and metric, loads with the same outcome together."""
    found = []
    known = [one for one in comparison.duels if one.load is not None]
    labels = {one.name: one.label for one in comparison.variants}
    for variant, against, kv in dict.fromkeys((one.variant, one.against, one.kv) for one in known):
        mine = [one for one in known if (one.variant, one.against, one.kv) == (variant, against, kv)]
        told = [_duel_by(metric, mine) for metric in dict.fromkeys(one.metric for one in mine)]
        # Sides of one run are no evidence about another start: the order is what was measured, no more.
        told += [say("tradeoffs.words.one_run")] if any(one.outcome == "one_run" for one in mine) else []
        pair = {"variant": labels.get(variant, variant), "against": labels.get(against, against)}
        found.append(say("tradeoffs.words.duel", **pair, kv=say(f"tradeoffs.kv.{kv}"), told=" ".join(told)))
    return found or [say("tradeoffs.words.no_duel")]


def _duel_by(metric: str, duels: Sequence[Duel]) -> str:
    mine = sorted((one for one in duels if one.metric == metric), key=lambda one: one.load or 0.0)
    told = "; ".join(
        say(f"tradeoffs.words.duel_{outcome}", loads=", ".join(_duel_load(one) for one in group))
        for outcome, group in _outcomes(mine)
    )
    return say("tradeoffs.words.duel_by", metric=metric_name(metric), told=told)


def _outcomes(duels: Sequence[Duel]) -> list[tuple[str, list[Duel]]]:
    groups: dict[str, list[Duel]] = {}
    for one in duels:
        measured = "faster" if one.gain.value > 1 else "slower"
        groups.setdefault(measured if one.outcome == "one_run" else one.outcome, []).append(one)
    return [(name, groups[name]) for name in ("faster", "undecided", "slower") if name in groups]


def _duel_load(one: Duel) -> str:
    return f"{one.load:g} ({factor(one.gain)})" if one.gain.low is None else f"{one.load:g}: {factor(one.gain)}"


def end_sentences(comparison: Comparison) -> list[str]:
    """Where each variant's advantage ends, measured beside what the roofline says."""
    found = []
    for variant in comparison.variants:
        mine = [one for one in comparison.ends if one.variant == variant.name]
        lasting = [one for one in mine if one.measured.status == "keeps" and one.measured.low is None]
        if lasting:
            found.append(_lasting(variant, lasting))
        found += [_end(variant, one) for one in mine if one not in lasting]
    for variant in comparison.variants:
        at = variant.vanishing
        if at is None:
            continue
        name = "roof_never" if at.tokens is None else "roof_at"
        fields = {
            "variant": variant.label, "best": f"{at.best:.1f}", "last": f"{at.last:.1f}",
            "own": f"{at.own_balance:.0f}",
            "base": f"{at.baseline_balance:.0f}",
        }  # fmt: skip
        fields |= {"tokens": f"{at.tokens:.0f}"} if at.tokens is not None else {}
        found.append(say(f"tradeoffs.words.{name}", **fields))
    return found


def _lasting(variant: Variant, ends: Sequence[Ends]) -> str:
    """Curves whose advantage lasts, told together: by KV mode the metrics, and up to which load."""
    parts = []
    for kv in dict.fromkeys(one.kv for one in ends):
        mine = [one for one in ends if one.kv == kv]
        names = " and ".join(metric_name(one.metric) for one in mine)
        load = min(one.measured.below or 0.0 for one in mine)
        parts.append(say("tradeoffs.words.lasting_part", metrics=names, kv=say(f"tradeoffs.kv.{kv}"), load=f"{load:g}"))
    level = f"{(ends[0].measured.level - 1) * 100:g} %"
    text = say("tradeoffs.words.lasting", variant=variant.label, level=level, parts="; ".join(parts))
    roofs = dict.fromkeys(_roof_at(one) for one in ends if one.predicted is not None)
    return " ".join([text, *filter(None, roofs)])


def _end(variant: Variant, one: Ends) -> str:
    text = say(
        "tradeoffs.words.ends",
        variant=variant.label,
        metric=metric_name(one.metric),
        kv=say(f"tradeoffs.kv.{one.kv}"),
        level=f"{(one.measured.level - 1) * 100:g} %",
        measured=_ends_at(one.measured),
    )
    return f"{text} {_roof_at(one)}".strip()


def _ends_at(one: Crossing) -> str:
    if one.status == "too_few":
        return say("tradeoffs.words.at_too_few")
    if one.status == "keeps":
        unsure = (
            "" if not one.banded or one.low is None else " " + say("tradeoffs.words.at_unsure", low=f"{one.low:.0f}")
        )
        return say("tradeoffs.words.at_keeps", load=f"{one.below:g}") + unsure
    if one.status == "never":
        return say("tradeoffs.words.at_never", load=f"{one.above:g}")
    between = say("tradeoffs.words.at_found", at=f"{one.at:.0f}", below=f"{one.below:g}", above=f"{one.above:g}")
    if not one.banded:
        return f"{between}, {say('tradeoffs.words.no_interval')}"
    low = f"{one.low:.0f}" if one.low is not None else say("tradeoffs.words.before_first")
    high = f"{one.high:.0f}" if one.high is not None else say("tradeoffs.words.after_last")
    return f"{between}, {say('tradeoffs.words.interval', low=low, high=high)}"


def _roof_at(one: Ends) -> str:
    if one.predicted is None or one.predicted.status == "too_few":
        return ""
    if one.predicted.status == "found":
        return say("tradeoffs.words.predicted_at", metric=metric_name(one.metric), at=f"{one.predicted.at:.0f}")
    return say(f"tradeoffs.words.predicted_{one.predicted.status}")


def split_sentences(comparison: Comparison) -> list[str]:
    """How gains split into kernels and larger batches; why they cannot be split where they cannot."""
    labels = {one.name: one.label for one in comparison.variants}
    found = [
        say(
            "tradeoffs.words.split",
            variant=labels.get(one.variant, one.variant),
            load=load_word(one.load, one.point),
            whole=factor(one.split.whole),
            kernels=factor(one.split.kernels),
            batches=factor(one.split.batches),
        )
        for one in comparison.splits
        if one.metric == "output_tokens_per_s"
    ]
    return [*found, *split_notes(comparison)]


def split_notes(comparison: Comparison) -> list[str]:
    """What to know where the KV cache was free: batches differ too, or cannot be told apart."""
    if len(comparison.kvs) < 2 and comparison.has_speed:
        return [say("tradeoffs.words.no_split", kv=say(f"tradeoffs.kv.{comparison.kvs[0]}"))]
    return [say("tradeoffs.words.free_tpot")] if comparison.splits else []


def reason_sentences(variant: Variant) -> list[str]:
    """What inside a step makes the variant what it is: the kernel, then each phase by its parts."""
    why = variant.reasons
    if why is None:
        return []
    found = []
    for line in why.logged:
        known = matmul_of_log(line)
        if known is None:
            found.append(say("tradeoffs.words.logged_unknown", variant=variant.label, line=line))
        else:
            found.append(
                say(
                    f"tradeoffs.words.logged_{known.gain}",
                    variant=variant.label,
                    line=line,
                    kernel=known.name,
                    computes=known.computes,
                )
            )
    for step in why.steps:
        parts = [one for one in why.categories if one.phase == step.phase]
        large = sorted(
            (p for p in parts if abs(p.change_ns) > _FLOOR * step.baseline_ns), key=lambda p: -abs(p.change_ns)
        )
        causes = [one for one in why.idle_causes if one.phase == step.phase]
        told = ", ".join(
            f"{category_word(p.part)} {signed_time(p.change_ns)}{_cause(p, causes)}" for p in large[:_MOST_PARTS]
        )
        sentence = say(
            "tradeoffs.words.step",
            variant=variant.label,
            phase=step.phase,
            tokens=f"{why.tokens[step.phase]:,.0f}" if step.phase in why.tokens else "?",
            baseline=units.show_time(step.baseline_ns),
            time=units.show_time(step.variant_ns),
            parts=told or say("tradeoffs.words.no_part"),
        )
        matmuls = [one for one in why.matmuls if one.phase == step.phase]
        more = [*_quantizing(parts, step), *([_matmul(matmuls)] if matmuls else [])]
        found.append(" ".join([sentence, *more]))
    return [*found, *why.missing]


def _cause(part: KernelPart, causes: Sequence[KernelPart]) -> str:
    """Of idle time the cause that changed most, in brackets; of anything else nothing."""
    changed = [one for one in causes if one.change_ns]
    if part.part != "idle" or not changed:
        return ""
    most = max(changed, key=lambda one: abs(one.change_ns))
    return f" ({say(f'compare.idle_cause.{most.part}')} {signed_time(most.change_ns)})"


def _quantizing(parts: Sequence[KernelPart], step: KernelPart) -> list[str]:
    """Quantizing activations is fused with norms: the two are told together, or a norm would seem to vanish."""
    times = {one.part: one for one in parts}
    quantize, norms = times.get("quantize"), times.get("norm_act")
    if quantize is None or quantize.variant_ns <= _FLOOR * step.variant_ns:
        return []
    net = quantize.change_ns + (norms.change_ns if norms else 0)
    share = units.show_share(quantize.variant_ns / step.variant_ns)
    return [
        say("tradeoffs.words.quantizing", time=units.show_time(quantize.variant_ns), share=share, net=signed_time(net))
    ]


def _matmul(parts: Sequence[KernelPart]) -> str:
    before = [f"{one.part} {units.show_time(one.baseline_ns)}" for one in parts if one.baseline_ns > 0]
    after = [f"{one.part} {units.show_time(one.variant_ns)}" for one in parts if one.variant_ns > 0]
    return say("tradeoffs.words.matmuls", before=", ".join(before), after=", ".join(after))


def accuracy_words(one: Accuracy) -> str:
    """Perplexity's rise, agreement and divergence with their intervals, of what, and how many tokens."""
    parts = []
    if (ratio := one.perplexity_ratio) is not None:
        parts.append(say("tradeoffs.words.rise", rise=rise(ratio)))
    if one.agreement is not None:
        parts.append(say("tradeoffs.words.agreement", share=shares(one.agreement)))
    if one.kl is not None:
        name = "kl_bound" if one.kl_is_lower_bound else "kl"
        ends = "" if one.kl.low is None or one.kl.high is None else f" ({one.kl.low:.4f} to {one.kl.high:.4f})"
        parts.append(say(f"tradeoffs.words.{name}", kl=f"{one.kl.value:.4f}{ends}"))
    return "; ".join(parts) or say("tradeoffs.words.nothing_known")


def scored(one: Accuracy, label: str) -> str:
    """The model that was scored, with the format where it is not quite that of `label`."""
    other = one.label and one.label != label and not one.label.startswith("16 bit")
    return f"{one.place.model.partition(' (')[0]}{f', {one.label}' if other else ''}"


def rise(ratio: Estimate) -> str:
    """A ratio of perplexities as a rise: `+0.8 % (+0.5 to +1.1)`."""
    value = f"{(ratio.value - 1) * 100:+.2f} %"
    if ratio.low is None or ratio.high is None:
        return value
    return f"{value} ({(ratio.low - 1) * 100:+.2f} to {(ratio.high - 1) * 100:+.2f})"


def difference(one: Estimate) -> str:
    """A difference of scores: `-0.025 (-0.100 to +0.050)`; zero has no sign."""
    if one.low is None or one.high is None:
        return _signed(one.value)
    return f"{_signed(one.value)} ({_signed(one.low)} to {_signed(one.high)})"


def _signed(value: float) -> str:
    return f"{value:+.3f}" if round(value, 3) else "0"


def task_word(one: TaskScore) -> str:
    """What a task's difference comes to, in a word or two; `no score` where it failed."""
    return say(f"tradeoffs.task.{'failed' if one.failed else one.word or 'baseline'}")


def shares(one: Estimate) -> str:
    """A share with its interval: `97.1 % (96.8 to 97.4)`."""
    if one.low is None or one.high is None:
        return f"{one.value * 100:.1f} %"
    return f"{one.value * 100:.1f} % ({one.low * 100:.1f} to {one.high * 100:.1f})"


def recommendation_sentences(one: Recommendation) -> list[str]:
    """What to take, by how much it leads, what that rests on, what holds others back, and what is not known."""
    fields = {
        "profile": say(f"tradeoffs.profile.{one.profile}"), "metric": metric_name(one.metric), "load": f"{one.load:g}",
        "kv": say(f"tradeoffs.kv.{one.kv}") if one.memory_share is None
        else say("tradeoffs.kv.free_of", share=units.show_share(one.memory_share)),
    }  # fmt: skip
    absent = say("tradeoffs.words.absent", variants=", ".join(one.absent)) if one.absent else ""
    if one.chosen is None:
        found = [say("tradeoffs.words.none_chosen", **fields), absent]
    else:
        value = _value(one.chosen.value, one.metric)
        runs = say(
            "tradeoffs.words.run_one" if one.chosen.value.n == 1 else "tradeoffs.words.runs", n=one.chosen.value.n
        )
        chosen = say("tradeoffs.words.chosen", variant=one.chosen.label, value=value, runs=runs, **fields)
        found = [f"{chosen} {absent}".rstrip()]
        found += [_lead(one)] if one.lead is not None and one.runner_up is not None else []
    found += [_held_back(candidate, one.margin) for candidate in one.candidates if candidate.is_held_back]
    found += _unknown(one)
    return [sentence for sentence in found if sentence]


def _value(one: Estimate, metric: str) -> str:
    if metric.endswith("_ms"):
        ends = "" if one.low is None or one.high is None else f" ({one.low:.2f} to {one.high:.2f})"
        return f"{one.value:.2f} ms{ends}"
    ends = "" if one.low is None or one.high is None else f" ({one.low:,.0f} to {one.high:,.0f})"
    return f"{one.value:,.0f} tokens/s{ends}"


def _lead(one: Recommendation) -> str:
    assert one.lead is not None and one.runner_up is not None
    name = "lead_chance" if one.told_apart is False else "lead" if one.told_apart else "lead_one_run"
    return say(f"tradeoffs.words.{name}", factor=factor(one.lead), other=one.runner_up.label)


def _held_back(one: Candidate, margin: float) -> str:
    why = [say("tradeoffs.words.breaks", slo=name, value=f"{value:.1f}") for name, value in one.broken.items()]
    if one.keeps_accuracy is False and one.accuracy is not None and one.accuracy.perplexity_ratio is not None:
        why.append(
            say(
                "tradeoffs.words.loses",
                rise=rise(one.accuracy.perplexity_ratio),
                margin=f"{margin * 100:g} %",
                model=one.accuracy.place.model,
            )
        )
    return say("tradeoffs.words.held_back", variant=one.label, why="; ".join(why))


def _unknown(one: Recommendation) -> list[str]:
    found = []
    chosen = one.chosen
    if chosen is not None and chosen.variant != BASELINE:
        if chosen.accuracy is None:
            found.append(say("tradeoffs.words.accuracy_unknown", variant=chosen.label))
        else:
            name = "accuracy_kept" if chosen.keeps_accuracy else "accuracy_undecided"
            name = "accuracy_elsewhere" if chosen.is_elsewhere else name
            found.append(
                say(
                    f"tradeoffs.words.{name}",
                    variant=chosen.label,
                    words=accuracy_words(chosen.accuracy),
                    model=scored(chosen.accuracy, chosen.label),
                    margin=f"{one.margin * 100:g} %",
                )
            )
    if not one.slos:
        found.append(say("tradeoffs.words.no_slos"))
    unknown = sorted({name for candidate in one.candidates for name in candidate.unknown})
    if unknown:
        found.append(say("tradeoffs.words.slo_unknown", names=", ".join(unknown)))
    return found


def accuracy_told(one: Recommendation) -> str:
    """What is known of the chosen variant's accuracy; empty for the baseline, or where none is chosen."""
    if one.chosen is None or one.chosen.variant == BASELINE:
        return ""
    return _unknown(one)[0]


def claim_measured(one: Confronted) -> str:
    """What was measured against a claim, in one line a place."""
    return "; ".join(_seen(one, seen) for seen in one.seen) or say("tradeoffs.words.nothing_known")


def _seen(one: Confronted, seen: Seen) -> str:
    if one.claim.measure == "kernel":
        return f"{seen.text} ({seen.place.model})"
    if one.claim.measure == "loss":
        loss = seen.estimates[0][1]
        told = rise(Estimate(loss.value + 1, _plus_one(loss.low), _plus_one(loss.high), loss.n))
    elif one.claim.measure == "weights":
        told = f"{seen.low:.2f}"
    else:
        told = ", ".join(f"{factor(gain)} at {where}" for where, gain in seen.estimates)
    return f"{told} ({seen.place.model})"


def _plus_one(value: float | None) -> float | None:
    return None if value is None else value + 1
