"""Executed notebooks -> the parts of one page: sections, headings, outputs, and what stands at its head."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perflab.messages import say
from perflab.report import blocks, in_notebook, summary, summary_blocks, svg
from perflab.report.compact import Glyphs
from perflab.report.show import MEDIA
from perflab.report.summary import Found

LONG_TABLE = 14
"""Rows above which a table is folded away."""
HIDDEN_TAGS = frozenset({"parameters", "injected-parameters", "interactive", "next"})
_HEADING = re.compile(r"<h([1-6])(?: id=\"[^\"]*\")?>(.*?)</h\1>", re.DOTALL)
_LEVEL = re.compile(r'<h([1-6]) id="([^"]*)">[^\n]*</h\1>')
_LINK = re.compile(r'<a\b[^>]*?href="([^"]*)"[^>]*>(.*?)</a>', re.DOTALL)
_IMAGE = re.compile(r'<img\b[^>]*?alt="([^"]*)"[^>]*>')
_TAG = re.compile(r"<[^>]+>")


@dataclass(frozen=True)
class Heading:
    """An entry of the table of contents."""

    text: str
    anchor: str
    number: str = ""


@dataclass
class Section:
    """One notebook: its title, its answer, its second-level headings, and its blocks as HTML in order."""

    title: str
    anchor: str
    number: str = ""
    headings: list[Heading] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)
    answers: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def answer_html(self) -> str:
        """The answer in its sentences; empty where the notebook states none."""
        sentences = [sentence for answer in self.answers for sentence in answer["sentences"]]
        return blocks.answer_html(sentences) if sentences else ""


@dataclass
class Page:
    """What the template lays out.

    `judged`: a notebook looked for findings, even if it found none. `home`: the index that the page belongs to.
    """

    title: str
    sections: list[Section] = field(default_factory=list)
    runs: list[Mapping[str, Any]] = field(default_factory=list)
    findings: list[Found] = field(default_factory=list)
    judged: bool = False
    checks: list[Mapping[str, Any]] = field(default_factory=list)
    glyphs: Glyphs = field(default_factory=Glyphs)
    home: str = ""

    @property
    def answers(self) -> list[Mapping[str, Any]]:
        """The answers of all sections, in order."""
        return [answer for section in self.sections for answer in section.answers]

    @property
    def summed_up(self) -> bool:
        """Whether there is anything to put on a first page."""
        return bool(self.answers or self.judged or self.checks or self.runs)

    @property
    def groups(self) -> list[summary.Group]:
        """Findings over all runs, ranked."""
        return summary.groups(self.findings)

    @property
    def distinct_checks(self) -> list[Mapping[str, Any]]:
        """Checks of all sections, each once: two notebooks check the same traces."""
        return blocks.distinct(self.checks)

    def named(self, record: Mapping[str, Any], field: str) -> Mapping[str, Any]:
        """A finding or check with the short name of the run it is of; its `field` may say the pass behind the title."""
        told = str(record.get(field) or "")
        for title, name in self.names.items():
            if told == title or told.startswith(f"{title} ("):
                return {**record, field: name + told.removeprefix(title)}
        return record

    @property
    def names(self) -> dict[str, str]:
        """Short names of runs by their titles, where a title is of one run only."""
        titles = [str(run.get("title")) for run in self.runs]
        pairs = zip(titles, self.runs, strict=True)
        return {title: str(run["run"]) for title, run in pairs if titles.count(title) == 1}

    @property
    def more_findings(self) -> bool:
        """Are there findings that the first page does not show?"""
        return len(self.groups) > len(summary.top(self.groups))

    @property
    def parts(self) -> dict[str, str]:
        """The first page's pieces as HTML, by the name the template gives them."""
        return {
            "answer": summary_blocks.answer_html(self.answers),
            "findings": summary_blocks.findings_html(self.groups, self.names),
            "next": summary_blocks.next_html(self.groups, self.distinct_checks, self.runs),
            "unfinished": summary_blocks.unfinished_html(self.runs),
            "trust": summary_blocks.trust_html(self.distinct_checks),
            "source": summary_blocks.source_html(self.runs) if self.runs else "",
            "all_findings": summary_blocks.all_findings_html(self.groups, self.names),
            "runs": blocks.runs_html([{**run, "notes": ()} for run in self.runs]) if self.runs else "",
        }


def build_page(notebooks: list[Any], title: str | None, *, show_code: bool) -> Page:
    """Read executed notebooks (nbformat nodes), a section each.

    Cells tagged `interactive`, `parameters` and `injected-parameters` are left out; runs are told once, at the head.
    """
    page = Page(title or "")
    for number, notebook in enumerate(notebooks, start=1):
        page.sections.append(_section(page, notebook, number, show_code))
    if not page.title:
        page.title = page.sections[0].title if page.sections else "perflab"
    return page


def _section(page: Page, notebook: Any, number: int, show_code: bool) -> Section:
    prefix = f"s{number}-"
    section = Section(title=f"Part {number}", anchor=f"s{number}", number=str(number))
    for index, cell in enumerate(notebook.cells):
        if HIDDEN_TAGS & set(cell.metadata.get("tags", [])):
            continue
        if cell.cell_type == "markdown":
            section.blocks.append(_markdown(section, cell.source, prefix))
        elif cell.cell_type == "code":
            if show_code and cell.source.strip():
                section.blocks.append(_pre(cell.source, "code"))
            for place, output in enumerate(cell.get("outputs", [])):
                section.blocks.append(_output(page, section, output, prefix, f"{prefix}c{index}o{place}"))
    return _without_empty_headings(page, section)


def _without_empty_headings(page: Page, section: Section) -> Section:
    """Drop headings with nothing under them: what stood there has moved to the head of the page. Number the others."""
    section.blocks = [block for block in section.blocks if block]
    alone = [_LEVEL.fullmatch(block) for block in section.blocks]
    leads = [_LEVEL.match(block) for block in section.blocks]
    empty = {
        index
        for index, level in enumerate(alone)
        if level and (index + 1 == len(alone) or ((after := leads[index + 1]) and after.group(1) <= level.group(1)))
    }
    gone = {match.group(2) for index in empty if (match := alone[index])}
    section.blocks = [block for index, block in enumerate(section.blocks) if index not in empty]
    kept = [heading for heading in section.headings if heading.anchor not in gone]
    section.headings = [replace(one, number=f"{section.number}.{n}") for n, one in enumerate(kept, start=1)]
    numbers = {heading.anchor: heading.number for heading in section.headings}
    section.blocks = [_numbered(block, numbers) for block in section.blocks]
    # Where a finding stands was noted by its heading's anchor, whose number is known only now.
    page.findings = [replace(one, number=numbers.get(one.number, one.number)) for one in page.findings]
    return section


def _numbered(block: str, numbers: Mapping[str, str]) -> str:
    def with_number(match: re.Match[str]) -> str:
        number = numbers.get(match.group(2))
        start = match.group().index(">") + 1
        told = f'<span class="number">{number}</span> ' if number else ""
        return match.group()[:start] + told + match.group()[start:]

    return _LEVEL.sub(with_number, block)


def _markdown(section: Section, source: str, prefix: str) -> str:
    """A Markdown cell as HTML; its headings move one level down (the page has the first) into the contents."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    renderer = IPythonRenderer(escape=True, exclude_anchor_links=True)
    rendered = str(MarkdownWithMath(renderer=renderer).render(source))
    # HTML in the source is escaped, so that each of these tags is Markdown's own.
    rendered = rendered.replace("<table>", '<div class="scroll" tabindex="0"><table>')
    rendered = rendered.replace("</table>", "</table></div>")

    def heading(match: re.Match[str]) -> str:
        level, inner = int(match.group(1)), match.group(2)
        text = html.unescape(_TAG.sub("", inner)).strip()
        if level == 1:
            section.title = text
            return ""
        anchor = f"{prefix}{re.sub(r'[^a-z0-9]+', '-', text.lower()).strip('-')}-{len(section.headings)}"
        if level == 2:
            section.headings.append(Heading(text, anchor))
        return f'<h{min(level + 1, 6)} id="{anchor}">{inner}</h{min(level + 1, 6)}>'

    return _IMAGE.sub(r"\1", _LINK.sub(_within_page, _HEADING.sub(heading, rendered))).strip()


def _within_page(match: re.Match[str]) -> str:
    """Links within the page stay; of others the text stays, with the address if it says where to look."""
    target, text = match.groups()
    if target.startswith("#"):
        return match.group()
    return f"{text} ({target})" if target.startswith("http") and target not in text else text


def _output(page: Page, section: Section, output: Any, prefix: str, unique: str) -> str:
    if output.output_type == "stream":
        return _pre(_without_escapes(output.text), "stderr" if output.name == "stderr" else "stdout")
    if output.output_type == "error":
        text = _without_escapes("\n".join(output.traceback))
        return _pre(text, "stderr")
    data = output.get("data", {})
    ours = data.get(MEDIA)
    if ours is not None:
        return _ours(page, section, ours, data, prefix, unique)
    return _foreign(page, data, output.get("metadata", {}), unique)


def _ours(
    page: Page, section: Section, ours: Mapping[str, Any], data: Mapping[str, Any], prefix: str, unique: str
) -> str:
    kind = ours["kind"]
    if kind == "figure":
        drawing = svg.inline_svg(_text(data["image/svg+xml"]), unique, str(ours["alt"]), page.glyphs)
        return figure_block(drawing, str(ours.get("title") or ""))
    if kind == "runs":
        known = {run["run"] for run in page.runs}
        page.runs += [run for run in ours["runs"] if run["run"] not in known]
        return ""
    if kind == "answer":
        section.answers.append(ours)
        return ""
    if kind == "findings":
        page.judged = True
        # What two notebooks find alike is told once at the head.
        told = [one.finding for one in page.findings]
        here = section.headings[-1].anchor if section.headings else section.number
        ids = blocks.anchors(ours["findings"], prefix)
        page.findings += [
            Found(finding, its, here) for finding, its in zip(ours["findings"], ids, strict=True) if finding not in told
        ]
        return blocks.findings_html([page.named(one, "run") for one in ours["findings"]], ids)
    if kind == "trust":
        checks = [page.named(check, "source") for check in ours["checks"]]
        page.checks += checks
        return blocks.trust_html(checks, title=ours.get("title", ""))
    if kind == "table":
        return _table(ours, in_notebook.undressed(_text(data["text/html"])))
    return in_notebook.undressed(_text(data["text/html"]))


def _table(ours: Mapping[str, Any], text: str) -> str:
    """A long table folded away under its caption; it opens in print."""
    rows = int(ours.get("shown") or ours.get("rows") or 0)
    if rows <= LONG_TABLE:
        return text
    caption = str(ours.get("caption") or "")
    told = say("summary.rows", caption=caption, n=rows) if caption else say("summary.rows_only", n=rows)
    return f'<details class="long"><summary>{html.escape(told)}</summary>{text}</details>'


def _foreign(page: Page, data: Mapping[str, Any], metadata: Mapping[str, Any], unique: str) -> str:
    """Outputs that are not ours: pictures, HTML, Markdown or plain text, whichever comes first."""
    plain = _text(data.get("text/plain", ""))
    if "image/svg+xml" in data:
        return figure_block(svg.inline_svg(_text(data["image/svg+xml"]), unique, plain, page.glyphs))
    for media in ("image/png", "image/jpeg"):
        if media in data:
            raw = _text(data[media]).replace("\n", "")
            base64.b64decode(raw, validate=True)
            alt = html.escape(str(metadata.get(media, {}).get("alt") or plain or "figure"), quote=True)
            return figure_block(f'<img src="data:{media};base64,{raw}" alt="{alt}">')
    if "application/vnd.jupyter.widget-view+json" in data:
        return ""
    if "text/html" in data:
        return f'<div class="scroll" tabindex="0">{_text(data["text/html"])}</div>'
    return _pre(plain, "stdout") if plain else ""


def _pre(text: str, kind: str) -> str:
    return f'<pre class="{kind} scroll" tabindex="0"><code>{html.escape(text)}</code></pre>'


def figure_block(drawing: str, title: str = "") -> str:
    """A figure that scrolls where it is too wide; its title then stands above it too, where nothing cuts it."""
    above = f'<figcaption class="narrow" aria-hidden="true">{html.escape(title)}</figcaption>' if title else ""
    return f'<figure>{above}<div class="scroll">{drawing}</div></figure>'


def _text(value: Any) -> str:
    return "".join(value) if isinstance(value, list) else str(value)


def _without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
