"""The first page of a report as HTML. Everything given is escaped here or in `blocks`."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from perflab import units
from perflab.messages import say
from perflab.plots import style
from perflab.report import blocks, summary
from perflab.report.summary import Data, Found, Group

_TRUST_SHOWN = 4
_NOTES_SHOWN = 3


def answer_html(answers: Sequence[Data]) -> str:
    """The answers of all notebooks, then their figures in large type."""
    sentences = [sentence for answer in answers for sentence in answer["sentences"]]
    if not sentences:
        return f'<p class="quiet">{html.escape(say("summary.no_answer"))}</p>'
    tiles = [tile for answer in answers for tile in answer.get("tiles", ())][:4]
    if len(tiles) < 2:
        # The sentence has it already; alone it is a box across the page.
        tiles = []
    told = "".join(
        f"<div><dt>{html.escape(tile['label'])}</dt><dd>{_value(tile['value'])}"
        f"<small>{html.escape(tile.get('note', ''))}</small></dd></div>"
        for tile in tiles
    )
    return blocks.answer_html(sentences) + (f'<dl class="tiles">{told}</dl>' if told else "")


def unfinished_html(runs: Sequence[Data]) -> str:
    """Runs that did not come to their end, and why: what is missing of them is in no figure."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for run in runs:
        if _is_unfinished(run):
            why = (str(run["status"]), str(run.get("reason") or "–").rstrip("."), str(run.get("missing") or ""))
            alike.setdefault(why, []).append(str(run["run"]))
    told = []
    for (status, reason, missing), names in alike.items():
        name = "summary.unfinished" if len(names) == 1 else "summary.unfinished_several"
        line = [say(name, run=", ".join(names), status=status, reason=reason)]
        if missing:
            line.append(say("summary.measured_of", measured=missing))
        told.append(" ".join([*line, say("summary.unmeasured")]))
    return "".join(blocks.caution_html(line) for line in told)


def _is_unfinished(run: Data) -> bool:
    return run.get("status") not in (None, "complete")


def findings_html(groups: Sequence[Group], names: Mapping[str, str]) -> str:
    """The three most important findings, each linked to its evidence; `names` are short names of runs by title."""
    shown = summary.top(groups)
    if not shown:
        name = "withheld" if groups else "none"
        return f'<p class="quiet">{html.escape(say(f"summary.{name}", n=len(groups)))}</p>'
    rest = len(groups) - len(shown)
    more = say("summary.more_one") if rest == 1 else say("summary.more", n=rest) if rest else ""
    link = f'<p class="quiet"><a href="#findings">{html.escape(more)}</a></p>' if more else ""
    return _list(shown, names) + link


def all_findings_html(groups: Sequence[Group], names: Mapping[str, str]) -> str:
    """Every finding in a line, with a link to its card."""
    return _list(groups, names)


def next_html(groups: Sequence[Group], checks: Sequence[Data] = (), runs: Sequence[Data] = ()) -> str:
    """What to do about the most important findings: the change, and the command that confirms it.

    Where there is none and a check failed, rules had to be silent: then that is to be mended first. Where a run did
    not come to its end, what is missing is to be measured before anybody can say that nothing needs to be changed.
    """
    found = summary.steps(summary.top(groups))
    if not found:
        open_end = "finish_first" if any(_is_unfinished(run) for run in runs) else "nothing_next"
        name = "mend_first" if summary.worst(checks) == "fail" else open_end
        return f'<p class="quiet">{html.escape(say(f"summary.{name}"))}</p>'
    items = "".join(f"<li><p>{blocks.inline(str(one['change']))}</p>{_confirm(one)}</li>" for one in found)
    return f'<ol class="next">{items}</ol>'


def trust_html(checks: Sequence[Data]) -> str:
    """How many checks passed, and those that did not, once for all runs."""
    if not checks:
        return f'<p class="quiet">{html.escape(say("report.trust.none"))}</p>'
    counts, worst = summary.counts(checks), summary.worst(checks)
    told = {name: units.show_count(n) for name, n in counts.items()}
    line = say(
        "summary.trust_all", n=units.show_count(len(checks)), passed=told["pass"], warn=told["warn"], fail=told["fail"],
        other=told["not_applicable"],
    )  # fmt: skip
    head = (
        f'<p class="trust-line"><span class="pill {worst}">{blocks.state_word(worst)}</span> '
        f"<span>{html.escape(line)}</span></p>"
    )
    doubts = summary.doubts(checks)
    items = "".join(_doubt(doubt) for doubt in doubts[:_TRUST_SHOWN])
    rest = len(doubts) - _TRUST_SHOWN
    name = "trust_more_one" if rest == 1 else "trust_more"
    more = f'<p class="quiet">{html.escape(say(f"summary.{name}", n=rest))}</p>' if rest > 0 else ""
    return head + (f'<ul class="checks">{items}</ul>' if items else "") + more


def source_html(runs: Sequence[Data]) -> str:
    """Hardware, engine, models and dates, a row a kind of machine; then what a reader must know of the runs."""
    found = summary.origins(runs)
    words = {name: html.escape(say(f"summary.column.{name}"), quote=True) for name in _COLUMNS}
    rows = "".join(f"<tr>{_origin_cells(one, words)}</tr>" for one in found)
    heads = "".join(f"<th scope=col>{word}</th>" for word in words.values())
    several = len({one.machine for one in found}) > 1
    caution = blocks.caution_html(say("summary.machines", n=len({one.machine for one in found}))) if several else ""
    table = (
        f'<div class="scroll"><table class="pl origins"><caption class="sr">{html.escape(say("summary.source"))}'
        f"</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    return caution + table + notes_html(runs)


_COLUMNS = ("hardware", "engine", "models", "made", "runs")


def _origin_cells(one: summary.Origin, words: Mapping[str, str]) -> str:
    """A row; on a narrow page its cells stand below one another, each with its column's word."""
    shown = {
        "hardware": html.escape("; ".join(one.hardware) or one.machine),
        "engine": html.escape(one.engine or "–"),
        "models": html.escape(", ".join(one.models) or "–"),
        "made": html.escape(" to ".join(dict.fromkeys(one.dates)) or "–"),
        "runs": html.escape(", ".join(one.runs)) + _unfinished(one.unfinished),
    }
    first, *others = (
        f'{" class=date" if name == "made" else ""} data-label="{words[name]}">{text}' for name, text in shown.items()
    )
    return f"<th scope=row{first}</th>" + "".join(f"<td{cell}</td>" for cell in others)


def notes_html(runs: Sequence[Data]) -> str:
    """Remarks on the runs; those past the third folded away."""
    found = summary.notes(runs)
    if not found:
        return ""
    shown, rest = found[:_NOTES_SHOWN], found[_NOTES_SHOWN:]
    folded = ""
    if rest:
        folded = (
            f"<details><summary>{html.escape(say('summary.more_notes', n=len(rest)))}</summary>{_notes(rest)}</details>"
        )
    return f'<div class="notes"><p class="label">{html.escape(say("summary.notes"))}</p>{_notes(shown)}{folded}</div>'


def _notes(found: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    items = "".join(
        f"<li>{blocks.inline(note)}"
        + (f' <span class="of">{html.escape(", ".join(of))}</span>' if of else "")
        + "</li>"
        for note, of in found
    )
    return f"<ul>{items}</ul>"


def _list(shown: Sequence[Group], names: Mapping[str, str]) -> str:
    return f'<ol class="top">{"".join(_line(group, names) for group in shown)}</ol>'


def _line(group: Group, names: Mapping[str, str]) -> str:
    finding, level = group.first.finding, blocks.severity(group.first.finding)
    impact = blocks.impact_text(finding.get("impact"))
    facts = [say("summary.impact", impact=impact) if impact else say("summary.no_impact")]
    if share := blocks.confidence_text(finding):
        facts.append(say("summary.confidence", share=share))
    if run := _name(group.first, names):
        facts.append(run)
    told = blocks.minus(html.escape(" · ".join(facts)))
    if group.others:
        links = [
            f'<a href="{one.link}" data-at="{one.number}">{html.escape(_name(one, names))}</a>' for one in group.others
        ]
        told += f" · {say('summary.also', runs=style.join(links))}"
    return (
        f'<li class="{level}"><span class="pill {level}">{level}</span><div><p class="what">'
        f'<a href="{group.first.link}" data-at="{group.first.number}">{blocks.inline(str(finding["title"]))}</a></p>'
        f'<p class="quiet">{told}</p></div></li>'
    )


def _name(one: Found, names: Mapping[str, str]) -> str:
    run = str(one.finding.get("run") or "")
    return names.get(run, run)


def _confirm(finding: Data) -> str:
    check = str(finding.get("check") or "")
    if not check:
        return ""
    return f'<p class="quiet">{html.escape(say("summary.confirm"))}</p>{blocks.command_html(check)}'


def _doubt(doubt: summary.Doubt) -> str:
    status = str(doubt.check["status"])
    told = blocks.inline(str(doubt.check["detail"]))
    if doubt.count > 1 and doubt.sources:
        of = say("summary.trust_of", n=doubt.count, source=doubt.sources[0])
        told += f' <span class="of">{html.escape(of)}</span>'
    elif doubt.sources:
        told += f' <span class="of">{html.escape(doubt.sources[0])}</span>'
    return f'<li><span class="pill {status}">{blocks.state_word(status)}</span><span>{told}</span></li>'


def _unfinished(found: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f'<br><span class="of">{html.escape(say("summary.status", run=r, status=s))}</span>' for r, s in found
    )


def _value(text: str) -> str:
    """A number with its unit in smaller type behind it."""
    number, _, unit = text.partition(" ")
    return f"<b>{blocks.minus(html.escape(number))}</b>{f' <i>{html.escape(unit)}</i>' if unit else ''}"
