"""Executed notebooks -> the parts of one page: sections, headings, outputs, and what stands at its head."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perflab.report import blocks, svg
from perflab.report.show import MEDIA

HIDDEN_TAGS = frozenset({"parameters", "injected-parameters", "interactive"})
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


@dataclass
class Section:
    """One notebook: its title, its second-level headings, and its blocks as HTML in order."""

    title: str
    anchor: str
    headings: list[Heading] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)


@dataclass
class Page:
    """What the template lays out. `judged`: a notebook looked for findings, even if it found none."""

    title: str
    sections: list[Section] = field(default_factory=list)
    runs: list[Mapping[str, Any]] = field(default_factory=list)
    findings: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    judged: bool = False
    checks: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def single(self) -> bool:
        """Whether the page is one notebook under its own title, which then need not be said twice."""
        return len(self.sections) == 1 and self.sections[0].title == self.title

    @property
    def runs_html(self) -> str:
        """Facts of the runs."""
        return blocks.runs_html(self.runs) if self.runs else ""

    @property
    def findings_html(self) -> str:
        """Findings, a line each."""
        return blocks.findings_summary_html(self.findings)


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
    section = Section(title=f"Part {number}", anchor=f"s{number}")
    for index, cell in enumerate(notebook.cells):
        if HIDDEN_TAGS & set(cell.metadata.get("tags", [])):
            continue
        if cell.cell_type == "markdown":
            section.blocks.append(_markdown(section, cell.source, prefix))
        elif cell.cell_type == "code":
            if show_code and cell.source.strip():
                section.blocks.append(_pre(cell.source, "code"))
            for place, output in enumerate(cell.get("outputs", [])):
                section.blocks.append(_output(page, output, prefix, f"{prefix}c{index}o{place}"))
    return _without_empty_headings(section)


def _without_empty_headings(section: Section) -> Section:
    """Drop headings with nothing under them: what stood there has moved to the head of the page."""
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
    section.headings = [heading for heading in section.headings if heading.anchor not in gone]
    return section


def _markdown(section: Section, source: str, prefix: str) -> str:
    """A Markdown cell as HTML; its headings move one level down (the page has the first) into the contents."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    renderer = IPythonRenderer(escape=True, exclude_anchor_links=True)
    rendered = str(MarkdownWithMath(renderer=renderer).render(source))

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


def _output(page: Page, output: Any, prefix: str, unique: str) -> str:
    if output.output_type == "stream":
        return _pre(_without_escapes(output.text), "stderr" if output.name == "stderr" else "stdout")
    if output.output_type == "error":
        text = _without_escapes("\n".join(output.traceback))
        return _pre(text, "stderr")
    data = output.get("data", {})
    ours = data.get(MEDIA)
    if ours is not None:
        return _ours(page, ours, data, prefix, unique)
    return _foreign(data, output.get("metadata", {}), unique)


def _ours(page: Page, ours: Mapping[str, Any], data: Mapping[str, Any], prefix: str, unique: str) -> str:
    kind = ours["kind"]
    if kind == "figure":
        drawing = svg.inline_svg(_text(data["image/svg+xml"]), unique, str(ours["alt"]))
        return _figure(drawing)
    if kind == "runs":
        known = {run["run"] for run in page.runs}
        page.runs += [run for run in ours["runs"] if run["run"] not in known]
        return ""
    if kind == "findings":
        page.judged = True
        # What two notebooks find alike is told once at the head.
        told = [finding for _, finding in page.findings]
        page.findings += [(prefix, finding) for finding in ours["findings"] if finding not in told]
        return blocks.findings_html(ours["findings"], prefix=prefix)
    if kind == "trust":
        page.checks += ours["checks"]
        return blocks.trust_html(ours["checks"], title=ours.get("title", ""))
    return _text(data["text/html"])


def _foreign(data: Mapping[str, Any], metadata: Mapping[str, Any], unique: str) -> str:
    """Outputs that are not ours: pictures, HTML, Markdown or plain text, whichever comes first."""
    plain = _text(data.get("text/plain", ""))
    if "image/svg+xml" in data:
        return _figure(svg.inline_svg(_text(data["image/svg+xml"]), unique, plain))
    for media in ("image/png", "image/jpeg"):
        if media in data:
            raw = _text(data[media]).replace("\n", "")
            base64.b64decode(raw, validate=True)
            alt = html.escape(str(metadata.get(media, {}).get("alt") or plain or "figure"), quote=True)
            return _figure(f'<img src="data:{media};base64,{raw}" alt="{alt}">')
    if "application/vnd.jupyter.widget-view+json" in data:
        return ""
    if "text/html" in data:
        return f'<div class="scroll" tabindex="0">{_text(data["text/html"])}</div>'
    return _pre(plain, "stdout") if plain else ""


def _pre(text: str, kind: str) -> str:
    return f'<pre class="{kind} scroll" tabindex="0"><code>{html.escape(text)}</code></pre>'


def _figure(drawing: str) -> str:
    return f'<figure><div class="scroll" tabindex="0">{drawing}</div></figure>'


def _text(value: Any) -> str:
    return "".join(value) if isinstance(value, list) else str(value)


def _without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
