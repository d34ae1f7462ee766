"""The table over many runs as HTML: what ran, key figures, how far to trust them, and a link each."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perflab import units
from perflab.messages import say
from perflab.plots import style
from perflab.report import summary
from perflab.report.page import Page
from perflab.tasks.machines import in_order

Data = Mapping[str, Any]

_COLOURS = {
    "GEMM": style.CATEGORY_COLOURS["gemm"], "MoE": style.CATEGORY_COLOURS["moe"],
    "attention": style.CATEGORY_COLOURS["attention"], "other compute": style.CATEGORY_COLOURS["norm_act"],
    "KV cache writes and copies": style.CATEGORY_COLOURS["kv_cache"],
    "communication": style.CATEGORY_COLOURS["communication"], "idle time": style.IDLE,
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One run's page, and what the index says of it."""

    file: str
    page: Page
    run: Data
    figures: Mapping[str, Any]

    @property
    def machine(self) -> str:
        """The kind of machine; empty where it is not known."""
        return str(self.run.get("machine") or "")

    @property
    def best(self) -> Data | None:
        """The load with the most throughput; None where nothing was measured."""
        loads = self.figures.get("loads") or ()
        return loads[-1] if loads else None


def table_html(entries: Sequence[Entry]) -> str:
    """All runs, those of a machine together: what ran, key figures, how far to trust them, when; each with its link."""
    columns = ("run", "model", "engine", "rate", "tpot", "ttft", "step", "parts", "trust", "made")
    heads = "".join(
        f'<th scope="col"{" class=num" if name in ("rate", "tpot", "ttft", "step") else ""}>'
        f"{html.escape(say(f'index.column.{name}'))}</th>"
        for name in columns
    )
    bodies = []
    for machine in in_order(entry.machine for entry in entries):
        mine = [entry for entry in entries if entry.machine == machine]
        head = f'<th scope="rowgroup" colspan="{len(columns)}">{html.escape(machine or "–")}</th>'
        bodies.append(f'<tbody><tr class="group">{head}</tr>{"".join(_row(entry) for entry in mine)}</tbody>')
    caption = html.escape(say("index.caption"))
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{caption}"><table class="pl index">'
        f"<caption><span>{caption}</span></caption><thead><tr>{heads}</tr></thead>{''.join(bodies)}</table></div>{_key(entries)}"
    )


def _row(entry: Entry) -> str:
    run, best = entry.run, entry.best
    status = run.get("status")
    unfinished = "" if status in (None, "complete") else f' <span class="pill warn">{html.escape(str(status))}</span>'
    link = f'<a href="{html.escape(entry.file, quote=True)}">{html.escape(str(run["run"]))}</a>{unfinished}'
    at = html.escape(f"{best['lengths']} {best['load']}") if best else ""
    load = f'<br><span class="of">{at}</span>' if best else ""
    rate = units.show_count(best["output_tokens_per_s"]) if best else None
    step = entry.figures.get("step_ns")
    worst = summary.worst(entry.page.distinct_checks)
    counts = summary.counts(entry.page.distinct_checks)
    bad = counts["fail"] or counts["warn"]
    word = html.escape(say(f"index.trust.{worst or 'none'}"))
    pill = f'<span class="pill {worst}">{bad or ""} {word}</span>'
    cells = [
        _num(rate, load), _num(_ms(best, "tpot_p50_ms")), _num(_ms(best, "ttft_p50_ms")),
        _num(_three(step / units.NS_PER_MS) if step else None),
    ]  # fmt: skip
    return (
        f'<tr><th scope="row">{link}</th><td>{html.escape(str(run.get("model") or "–"))}'
        f'<br><span class="of">{html.escape(str(run.get("hardware") or ""))}</span></td>'
        f"<td>{html.escape(str(run.get('engine') or '–'))}</td>{''.join(cells)}"
        f"<td>{_bar(entry.figures.get('shares') or {}, str(entry.figures.get('phase')))}</td>"
        f"<td>{pill}</td><td class=date>{html.escape(str(run.get('created') or '–'))}</td></tr>"
    )


def _bar(shares: Mapping[str, float], phase: str) -> str:
    """A step by kind of work as a small stacked bar, with its shares in words."""
    if not shares:
        return "–"
    told = ", ".join(f"{word} {units.show_share(share)}" for word, share in _by_size(shares) if share >= 0.005)
    alt = html.escape(f"{phase}: {told}", quote=True)
    x, parts = 0.0, []
    for word, colour in _COLOURS.items():
        width = 100 * shares.get(word, 0.0)
        if width > 0:
            fill = _themed(colour)
            parts.append(f'<rect x="{x:.2f}" width="{max(width - 0.6, 0.2):.2f}" height="14" fill="{fill}"/>')
            x += width
    largest, share = _by_size(shares)[0]
    drawing = (
        f'<svg class="bar-cell" viewBox="0 0 100 14" preserveAspectRatio="none" role="img" aria-label="{alt}">'
        f"<title>{alt}</title>{''.join(parts)}</svg>"
    )
    return f'{drawing}<span class="of">{html.escape(largest)} {units.show_share(share)}</span>'


def _key(entries: Sequence[Entry]) -> str:
    used = {word for entry in entries for word, share in (entry.figures.get("shares") or {}).items() if share > 0}
    items = "".join(
        f'<li><svg viewBox="0 0 10 10" aria-hidden="true"><rect width="10" height="10" fill="{_themed(colour)}"/></svg>'
        f"{html.escape(word)}</li>"
        for word, colour in _COLOURS.items()
        if word in used
    )
    return f'<ul class="key">{items}</ul>' if items else ""


def _by_size(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda item: -item[1])


def _num(text: str | None, more: str = "") -> str:
    return f'<td class="num">{html.escape(text)}{more}</td>' if text else '<td class="num na">–</td>'


def _ms(load: Data | None, name: str) -> str | None:
    value = (load or {}).get(name)
    return None if value is None else _three(value)


def _three(value: float) -> str:
    """Three significant digits, as a run's own page has them."""
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def _themed(colour: str) -> str:
    names = {value: name for name, value in style.INTERFACE.items()}
    return f"var(--{names[colour]})" if colour in names else colour
