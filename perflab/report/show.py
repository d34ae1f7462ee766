"""What notebooks show: one verb, the same in JupyterLab and in a report.

Each output carries, besides what Jupyter displays, plain data under perflab's own media type; the report page is
laid out from that (findings first, runs once, text alternatives), and tests read it.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import IPython.display
import msgspec
import pandas as pd
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perflab.analysis.checks import Check
from perflab.messages import say
from perflab.plots import style
from perflab.report import blocks, in_notebook, svg
from perflab.report.alternative import describe
from perflab.report.answers import Answer
from perflab.report.tables import table_html
from perflab.tasks.provenance import Provenance

_display: Any = IPython.display.display

MEDIA = "application/vnd.perflab.v1+json"


def show(thing: Figure | Axes | pd.DataFrame | str, *, caption: str = "", limit: int = 40, otherwise: str = "") -> None:
    """Show a figure, a table, or prose in the cell's output.

    Parameters
    ----------
    thing
        A figure or axes (drawn as SVG, then closed), a DataFrame (as a table with units), or a sentence of
        the catalogue with `**strong**` and `` `code` ``.
    caption, limit
        Of a table; see `table_html`.
    otherwise
        Names the sentence of the catalogue to show instead of a table without rows. An empty sentence shows nothing.
    """
    if otherwise and isinstance(thing, pd.DataFrame) and thing.empty:
        thing = say(otherwise)
    if isinstance(thing, Axes):
        thing = style.figure_of(thing)
    if isinstance(thing, Figure):
        _show_figure(thing)
    elif isinstance(thing, pd.DataFrame):
        data = {"rows": len(thing), "columns": [str(c) for c in thing.columns], "caption": caption}
        data["shown"] = min(len(thing), limit)
        _emit("table", data, table_html(thing, caption=caption, limit=limit), thing.head(limit).to_string(index=False))
    elif thing:
        _emit("text", {"text": thing}, blocks.text_html(thing), thing)


def show_each(
    pieces: Iterable[Mapping[str, Any]], plot: Callable[..., Figure | Axes], *, otherwise: str = "", **settings: Any
) -> None:
    """Draw and show a figure for each piece: `plot(**piece, **settings)`; see `perflab.report.views`.

    `otherwise` names the sentence of the catalogue to show where there is no piece.
    """
    pieces = list(pieces)
    for piece in pieces:
        show(plot(**piece, **settings))
    if not pieces and otherwise:
        show(say(otherwise))


def show_file(path: str | Path) -> None:
    """Show a text file as it stands."""
    text = Path(path).read_text(encoding="utf-8")
    _emit("file", {"name": Path(path).name}, blocks.file_html(text, Path(path).name), text)


def show_command(*words: str | Path) -> None:
    """Show a command to run in a terminal; paths below the current directory are shown from there."""
    here = Path.cwd()
    told = [w.relative_to(here) if isinstance(w, Path) and w.is_relative_to(here) else w for w in words]
    text = shlex.join(str(word) for word in told)
    _emit("command", {"command": text}, blocks.file_html(text), text)


def show_message(name: str, **fields: Any) -> None:
    """Show a sentence of the catalogue, its fields filled in."""
    show(say(name, **fields))


def show_runs(provenances: Iterable[Provenance]) -> None:
    """Show what ran: facts side by side, and what a reader must know before any figure."""
    runs = [
        {
            "run": p.run, "title": p.title, "facts": list(p.facts.items()), "notes": list(p.notes),
            "machine": p.machine, "hardware": p.hardware, "model": p.model, "created": p.created[:10],
            "engine": p.facts.get("Engine"), "status": p.status, "reason": p.reason,
            "missing": p.missing,
        }
        for p in provenances
    ]  # fmt: skip
    text = "\n".join(f"{run['run']}: {run['facts']}" for run in runs)
    _emit("runs", {"runs": runs}, blocks.runs_html(runs), text)


def show_trust(checks: Iterable[Any], *, title: str = "") -> None:
    """Show checks (records with `check`, `status`, `detail`, `undermines`): how far what follows can be trusted."""
    plain = [_plain(check) for check in checks]
    text = "\n".join(f"{check['status']}: {check['detail']}" for check in plain)
    _emit("trust", {"checks": plain, "title": title}, blocks.trust_html(plain, title=title), text)


def show_caution(checks: Iterable[Check], *conclusions: str) -> None:
    """Show, before what a failed check undermines, that it does; nothing where none does."""
    failed = [check for check in checks if check.status == "fail" and set(check.undermines) & set(conclusions)]
    if failed:
        text = say("report.trust.caution", why=" ".join(dict.fromkeys(check.detail for check in failed)))
        _emit("caution", {"text": text}, blocks.caution_html(text), text)


def show_answer(answer: Answer) -> None:
    """Show what the notebook comes to, in one or two sentences; a report has it on its first page."""
    text = "\n\n".join(answer.sentences)
    tiles = [dataclasses.asdict(tile) for tile in answer.tiles]
    runs = {name: dict(figures) for name, figures in answer.runs.items()}
    data = {"sentences": list(answer.sentences), "tiles": tiles, "runs": runs}
    _emit("answer", data, blocks.answer_html(answer.sentences), text)


def show_findings(findings: Iterable[Any]) -> None:
    """Show findings (records as in the JSON contract) in full, the gravest first."""
    plain = [_plain(finding) for finding in findings]
    text = "\n".join(f"{finding['severity']}: {finding['title']}" for finding in plain)
    _emit("findings", {"findings": plain}, blocks.findings_html(plain), text)


def drawn(thing: Figure | Axes) -> str:
    """A figure as HTML for a widget, in the notebook's look; it is closed."""
    figure = style.figure_of(thing) if isinstance(thing, Axes) else thing
    text = in_notebook.figure_html(svg.svg_of(figure), describe(figure)["alt"])
    pyplot.close(figure)
    return text


def _show_figure(figure: Figure) -> None:
    document = svg.svg_of(figure)
    described = describe(figure)
    # Closed, or Jupyter would show it a second time at the end of the cell.
    pyplot.close(figure)
    _display(
        {
            "text/html": in_notebook.figure_html(document, described["alt"]), "image/svg+xml": document,
            "text/plain": described["alt"], MEDIA: {"kind": "figure", **described},
        },
        raw=True,
    )  # fmt: skip


def _emit(kind: str, data: Mapping[str, Any], html: str, text: str) -> None:
    shown = {"text/html": in_notebook.dressed(html), "text/plain": text, MEDIA: {"kind": kind, **data}}
    _display(shown, raw=True)


def _plain(record: Any) -> dict[str, Any]:
    if isinstance(record, Mapping):
        return dict(record)
    if hasattr(record, "to_json"):
        return dict(record.to_json())
    of_dataclass = dataclasses.is_dataclass(record) and not isinstance(record, type)
    built: Any = dataclasses.asdict(record) if of_dataclass else msgspec.to_builtins(record)
    return {str(key): _listed(value) for key, value in built.items()}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
