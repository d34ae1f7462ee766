"""Tables as HTML for readers: one unit a column, numbers aligned, everything escaped."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis.kernel_names import short_kernel_name
from perflab.messages import say

MACHINE = "machine"
"""The column whose values head groups of rows."""
_NOT_MEASURED = '<td class="num na" title="not measured">–</td>'
_TIMES = ((units.NS_PER_S, "s"), (units.NS_PER_MS, "ms"), (units.NS_PER_US, "µs"))
_SIZES = ((1024**4, "TiB"), (units.GIB, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_LONG = 60
_SUFFIXES = {"_ms": "ms", "_per_s": "per s", "_tokens": "tokens", "_len": "tokens", "_s": "s"}


def table_html(
    frame: pd.DataFrame, *, caption: str = "", names: Mapping[str, str] | None = None, limit: int = 40
) -> str:
    """A DataFrame as an HTML table in a box that scrolls sideways if it must.

    Parameters
    ----------
    frame
        Columns ending in `_ns` are shown in the time unit that suits the whole column, `bytes` likewise, `share` in
        percent; `name` is a kernel's name, shortened, in full on hovering. NA is a dash.
    caption
        What the table shows.
    names
        Column -> heading, where the column's own name in words will not do.
    limit
        Rows shown; the caption tells how many there are.

    A column `machine` becomes headings over the rows of each machine, since figures of one say nothing about another.
    """
    shown = frame.head(limit)
    machines = [str(name) for name in shown[MACHINE]] if MACHINE in shown else []
    frame, shown = (one.drop(columns=MACHINE, errors="ignore") for one in (frame, shown))
    columns = [_column(str(name), frame[name], (names or {}).get(str(name))) for name in frame.columns]
    heads = "".join(f'<th scope="col" class="{cls}">{html.escape(title)}</th>' for title, cls, _ in columns)
    written = [
        "<tr>" + "".join(write(value) for (_, _, write), value in zip(columns, row, strict=True)) + "</tr>"
        for row in shown.itertuples(index=False, name=None)
    ]
    rows = f"<tbody>{''.join(written)}</tbody>" if not machines else _by_machine(written, machines, len(columns))
    if not len(frame):
        rows = f'<tbody><tr><td colspan="{max(len(columns), 1)}" class="na">no rows</td></tr></tbody>'
    if len(frame) > limit:
        caption = f"{caption} (the first {limit} of {len(frame):,})".strip()
    if not len(frame.columns):
        return f'<p class="quiet">{html.escape(say("report.page.no_rows", caption=caption or "–"))}</p>'
    told = f"<caption><span>{html.escape(caption)}</span></caption>" if caption else ""
    name = html.escape(caption or "table", quote=True)
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{name}"><table class="pl">{told}'
        f"<thead><tr>{heads}</tr></thead>{rows}</table></div>"
    )


def _by_machine(rows: Sequence[str], machines: Sequence[str], columns: int) -> str:
    """Rows under a heading for each machine, in the order in which machines come."""
    parts = []
    for machine in dict.fromkeys(machines):
        mine = "".join(row for row, its in zip(rows, machines, strict=True) if its == machine)
        head = f'<th scope="rowgroup" colspan="{columns}">{html.escape(machine)}</th>'
        parts.append(f'<tbody><tr class="group">{head}</tr>{mine}</tbody>')
    return "".join(parts)


def _column(name: str, values: pd.Series[Any], heading: str | None) -> tuple[str, str, Callable[[Any], str]]:
    """Heading with unit, CSS class, and the function that writes a cell."""
    words = heading or name.removesuffix("_ns").replace("_", " ")
    if name.endswith("_ns"):
        size, unit = _scale(values, _TIMES)
        return f"{words} ({unit})", "num", _number(lambda v: _digits(v / size))
    if name == "bytes" or name.endswith("_bytes"):
        size, unit = _scale(values, _SIZES)
        words = words.removesuffix(" bytes")
        return f"{words} ({unit})", "num", _number(lambda v: _digits(v / size))
    if name.endswith("share"):
        return f"{words.removesuffix(' share')} (%)", "num", _number(lambda v: units.show_share(v).removesuffix(" %"))
    if name == "name":
        return words, "", _kernel
    if pd.api.types.is_bool_dtype(values.dtype) or not pd.api.types.is_numeric_dtype(values.dtype):
        return words, "", _words
    if heading is None:
        for suffix, unit in _SUFFIXES.items():
            if name.endswith(suffix):
                words = f"{name.removesuffix(suffix).replace('_', ' ')} ({unit})"
                break
    whole = pd.api.types.is_integer_dtype(values.dtype) or bool((values.dropna() % 1 == 0).all())
    return words, "num", _number(units.show_count if whole else _digits)


def _number(show: Callable[[float], str]) -> Callable[[Any], str]:
    def write(value: Any) -> str:
        return _NOT_MEASURED if _missing(value) else f'<td class="num">{html.escape(show(float(value)))}</td>'

    return write


def _words(value: Any) -> str:
    if _missing(value):
        return "<td>–</td>"
    text = str(value)
    return f'<td class="long">{html.escape(text)}</td>' if len(text) > _LONG else f"<td>{html.escape(text)}</td>"


def _kernel(value: Any) -> str:
    if _missing(value):
        return "<td>–</td>"
    full = str(value)
    short = short_kernel_name(full, 60)
    title = f' title="{html.escape(full[:1000], quote=True)}"' if short != full else ""
    return f"<td><code{title}>{html.escape(short)}</code></td>"


def _scale(values: pd.Series[Any], steps: tuple[tuple[int, str], ...]) -> tuple[int, str]:
    """The unit in which the column's typical larger values read well."""
    known = values.dropna().astype(float).abs()
    top = float(known.quantile(0.75)) if len(known) else 0.0
    return next(((size, unit) for size, unit in steps if top >= size), steps[-1])


def _digits(value: float) -> str:
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 4
    return f"{value:,.{digits}f}"


def _missing(value: Any) -> bool:
    return value is None or bool(pd.isna(value))
