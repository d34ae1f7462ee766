"""Pieces of a page as HTML, from plain data: runs, checks, findings, prose. Everything given is escaped here."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from perflab import units
from perflab.messages import say

Data = Mapping[str, Any]

_STRONG, _CODE = re.compile(r"\*\*(.+?)\*\*"), re.compile(r"`([^`]+)`")
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s|[KMGT]iB|tokens)\b|%)")
_MINUS = re.compile(r"(?<![^\s(])-(?=\d)")
_FLAG = re.compile(r"(?<!\S)--?[A-Za-z][\w-]*")
_SEVERITIES = ("critical", "warning", "info")
_OPEN_STATES = ("fail", "warn")


def text_html(text: str) -> str:
    """Prose with `**strong**`, `` `code` ``, paragraphs, and lines that start with `- ` as a list. No other markup.

    What a run brought along (titles, notes, prompts) can be in it: it is escaped first, so it stays text.
    """
    blocks = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in block.splitlines()]
        if lines and all(line.startswith("- ") for line in lines):
            blocks.append("<ul>" + "".join(f"<li>{inline(line[2:])}</li>" for line in lines) + "</ul>")
        elif lines:
            blocks.append(f"<p>{inline(' '.join(lines))}</p>")
    return f'<div class="prose">{"".join(blocks)}</div>'


def answer_html(sentences: Sequence[str]) -> str:
    """The answer to a notebook's question."""
    return f'<div class="answer">{"".join(f"<p>{inline(sentence)}</p>" for sentence in sentences)}</div>'


def caution_html(text: str) -> str:
    """A warning before figures that cannot be taken at face value."""
    return f'<p class="caution">{inline(text)}</p>'


def file_html(text: str, name: str = "") -> str:
    """Text as it stands, under the file's name."""
    told = f'<p class="quiet"><code>{html.escape(name)}</code></p>' if name else ""
    return f'{told}<pre class="scroll" tabindex="0"><code>{html.escape(text.strip())}</code></pre>'


def runs_html(runs: Sequence[Data]) -> str:
    """Facts of runs (`facts`: pairs of label and value), a column a run; then their notes, each once.

    A note that is not of every run is followed by the names of those it is of.
    """
    facts = [dict(run["facts"]) for run in runs]
    labels = list(dict.fromkeys(label for of in facts for label in of))
    heads = "".join(f'<th scope="col">{html.escape(str(run["run"]))}</th>' for run in runs)
    rows = "".join(
        f'<tr><th scope="row">{html.escape(label)}</th>'
        + "".join(f"<td>{html.escape(str(of.get(label, '–')))}</td>" for of in facts)
        + "</tr>"
        for label in labels
    )
    name = html.escape(say("report.page.runs"), quote=True)
    notes: dict[str, list[str]] = {}
    for run in runs:
        for note in run.get("notes", ()):
            notes.setdefault(str(note), []).append(str(run["run"]))
    told = "".join(
        f'<li class="note">{inline(note)}'
        + (f' <span class="of">{html.escape(", ".join(of))}</span>' if len(of) < len(runs) else "")
        + "</li>"
        for note, of in notes.items()
    )
    table = (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{name}"><table class="pl facts">'
        f'<caption class="sr">{name}</caption><thead><tr><td></td>'
        f"{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    return table + (f'<ul class="notes">{told}</ul>' if told else "")


def trust_html(checks: Sequence[Data], *, title: str = "") -> str:
    """Checks: what failed or warns in full, what passed folded away. Those that say the same are one line."""
    checks = distinct(checks)
    if not checks:
        return f'<p class="trust-line">{html.escape(say("report.trust.none"))}</p>'
    counts = {state: sum(c["status"] == state for c in checks) for state in ("fail", "warn", "pass", "not_applicable")}
    worst = "fail" if counts["fail"] else "warn" if counts["warn"] else "pass"
    line = say(f"report.trust.{worst}", n=units.show_count(len(checks)), **counts)
    head = f'<p class="trust-line"><span class="pill {worst}">{state_word(worst)}</span> {html.escape(line)}</p>'
    told = _merged([c for c in checks if c["status"] in _OPEN_STATES])
    rest = [c for c in checks if c["status"] not in _OPEN_STATES]
    folded = ""
    if rest:
        summary = html.escape(say("report.trust.rest", n=units.show_count(len(rest))))
        folded = f"<details><summary>{summary}</summary>{_checks(_merged(rest))}</details>"
    heading = f"<h4>{html.escape(title)}</h4>" if title else ""
    return f'<div class="trust">{heading}{head}{_checks(told) if told else ""}{folded}</div>'


def findings_html(findings: Sequence[Data], ids: Sequence[str] = ()) -> str:
    """Findings in full: what, how sure, why, what to change, how to confirm. `ids`: of their cards on a page."""
    if not findings:
        return f'<p class="quiet">{html.escape(say("report.findings.none"))}</p>'
    cards = sorted(zip(findings, ids or anchors(findings), strict=True), key=lambda item: rank(item[0]))
    return f'<div class="findings">{"".join(_card(finding, its) for finding, its in cards)}</div>'


def impact_text(impact: Data | None) -> str:
    """`1.2 ms/step`, or nothing where the impact is not known."""
    if not impact or impact.get("value") is None:
        return ""
    value = float(impact["value"])
    if impact.get("unit") == "share":
        return units.show_share(value)
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {impact.get('unit', '')}".strip()


def confidence_text(finding: Data) -> str:
    """`85 %`; nothing for one that claims nothing, as a comparison without a verdict."""
    share = float(finding["confidence"])
    return f"{share * 100:.0f} %" if share else ""


def _card(finding: Data, its: str) -> str:
    level = severity(finding)
    evidence = "".join(f"<li>{inline(str(item))}</li>" for item in finding.get("evidence") or ())
    facts = [say("report.findings.impact", impact=impact)] if (impact := impact_text(finding.get("impact"))) else []
    if share := confidence_text(finding):
        facts.append(say("report.findings.confidence", share=share))
    rows = "".join(
        f"<dt>{html.escape(say(f'report.findings.{key}'))}</dt><dd>{shown}</dd>"
        for key, shown in (
            ("evidence", f"<ul>{evidence}</ul>" if evidence else ""),
            ("change", inline(str(finding.get("change") or ""))),
            ("check", command_html(str(finding.get("check") or ""))),
        )
        if shown
    )
    told = f'<p class="quiet">{minus(html.escape(" · ".join(facts)))}</p>' if facts else ""
    return (
        f'<article class="finding {level}" id="{its}"><header>'
        f'<span class="pill {level}">{level}</span>'
        f"<h4>{inline(str(finding['title']))} {_of_run(finding)}</h4></header>"
        f"{told}<dl>{rows}</dl></article>"
    )


def _of_run(finding: Data) -> str:
    run = str(finding.get("run") or "")
    return f'<span class="of">{html.escape(run)}</span>' if run else ""


def command_html(text: str) -> str:
    """A command on a line of its own; a sentence as prose."""
    if text.startswith(("perflab ", "vllm ", "nvidia-smi", "python ")) and "`" not in text:
        return f'<pre class="command"><code>{_flags(html.escape(text))}</code></pre>'
    return inline(text) if text else ""


def _checks(checks: Sequence[Data]) -> str:
    rows = []
    for check in checks:
        undermines = ", ".join(str(u) for u in check.get("undermines") or ())
        about = [str(check.get("source") or "")]
        if undermines and check["status"] in _OPEN_STATES:
            about.append(say("report.trust.undermines", what=undermines))
        told = " · ".join(filter(None, about))
        rows.append(
            f'<li><span class="pill {check["status"]}">{state_word(str(check["status"]))}</span>'
            f"<span>{inline(str(check['detail']))}"
            + (f'<br><span class="of">{html.escape(told)}</span>' if told else "")
            + "</span></li>"
        )
    return f'<ul class="checks">{"".join(rows)}</ul>'


def distinct(checks: Sequence[Data]) -> list[Data]:
    """Checks, each once: two notebooks check the same traces."""
    known: dict[tuple[str, ...], Data] = {}
    for check in checks:
        known.setdefault(tuple(str(check.get(name, "")) for name in ("check", "status", "detail", "source")), check)
    return list(known.values())


def _merged(checks: Sequence[Data]) -> list[Data]:
    """Checks that say the same of several runs or points told once, with all they are about."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for check in checks:
        key = (str(check["check"]), str(check["status"]), str(check["detail"]))
        found.setdefault(key, {**check, "sources": []})["sources"].append(str(check.get("source") or ""))
    return [{**held, "source": _sources(held["sources"])} for held in found.values()]


def _sources(sources: Sequence[str]) -> str:
    """`a, c1, c32; b, c1`: a run, then all its points. A title, which may hold commas, stays whole."""
    by_run: dict[str, list[str]] = {}
    for source in filter(None, sources):
        run, _, point = source.partition(", ")
        run, point = (source, "") if " " in run else (run, point)
        by_run.setdefault(run, []).append(point)
    return "; ".join(", ".join(filter(None, [run, *points])) for run, points in by_run.items())


def state_word(status: str) -> str:
    """A check's status as a reader reads it, escaped."""
    return html.escape(say(f"report.status.{status}"))


def rank(finding: Data) -> tuple[int, float]:
    """The gravest and surest first."""
    return _SEVERITIES.index(severity(finding)), -float(finding["confidence"])


def severity(finding: Data) -> str:
    """Its severity; `info` for one that is not known."""
    told = str(finding["severity"])
    return told if told in _SEVERITIES else "info"


def anchors(findings: Sequence[Data], prefix: str = "") -> list[str]:
    """The ids of findings' cards on a page, each another, in the order given."""
    made: list[str] = []
    for finding in findings:
        name = re.sub(r"[^A-Za-z0-9]+", "-", f"{prefix}finding-{finding['id']}-{finding.get('run', '')}").strip("-")
        made.append(name if name not in made else f"{name}-{len(made)}")
    return made


def inline(text: str) -> str:
    """One line of prose: `**strong**` and `` `code` ``; numbers stay with their units and have a true minus."""
    # Every second piece stood between backticks.
    pieces = _CODE.split(html.escape(text))
    for index, piece in enumerate(pieces):
        pieces[index] = f"<code>{_flags(piece)}</code>" if index % 2 else minus(_UNIT.sub("\u00a0", piece))
    return _STRONG.sub(r"<strong>\1</strong>", "".join(pieces))


def minus(text: str) -> str:
    """Text whose negative numbers have a minus sign, not a hyphen, at which a line could break."""
    return _MINUS.sub("\u2212", text)


def _flags(escaped: str) -> str:
    """Options of a command kept whole: a line would break behind their hyphens."""
    return _FLAG.sub(r'<span class="flag">\g<0></span>', escaped)
