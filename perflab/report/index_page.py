"""A report over many runs as a folder: a page each, and an index that says what each comes to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from perflab import units
from perflab.errors import InputError
from perflab.messages import say
from perflab.plots import style
from perflab.plots.multiples import plot_run_multiples
from perflab.report import summary, summary_blocks, svg
from perflab.report.alternative import describe
from perflab.report.choosing import Given, chosen, given
from perflab.report.compact import Glyphs
from perflab.report.composing import Progress, known_parameters, shown_names
from perflab.report.execution import execute
from perflab.report.index_blocks import Entry, table_html
from perflab.report.page import Page, build_page, figure_block
from perflab.report.rendering import page_text, read_notebook, without_paths, write_page
from perflab.tasks.machines import in_order
from perflab.tasks.own import own

Data = Mapping[str, Any]

MANY = 8
"""Runs above which one page would be too long to read, so that a report becomes a folder of pages."""
_AT_ONCE = 4


def report_folder(
    paths: str | Path | Sequence[str | Path],
    index: str | Path,
    *,
    pages: str | Path | None = None,
    title: str | None = None,
    show_code: bool = False,
    rules: str | Path | None = None,
    thresholds: str | Path | None = None,
    progress: Progress = lambda done, of, run: None,
) -> Path:
    """Write a page a run and an index over them; all links are relative, so that they can be moved together.

    Parameters
    ----------
    paths, title, show_code, rules, thresholds
        As `perflab.report.report`.
    index, pages
        The index's file, and the folder of the pages (default: the index's). Executed notebooks are kept in its
        `notebooks/`.
    progress
        Told how many of how many runs were done before, and the run that is done now; nothing at the end.

    Returns
    -------
    Path
        The index.

    Raises
    ------
    InputError
        When nothing is named, none of the runs holds anything, or a notebook fails.
    """
    asked = given(paths)
    own(rules, thresholds)
    front = Path(index)
    target = front.parent if pages is None else Path(pages)
    below = "" if target == front.parent else f"{Path(os.path.relpath(target, front.parent)).as_posix()}/"
    files = {"rules": rules, "thresholds": thresholds}
    more = {name: Path(path).resolve() for name, path in files.items() if path is not None}
    parts = [Given((run,)) for run in asked.runs] + [Given((), (study,)) for study in asked.studies]
    told = [part for part in parts if chosen(part)]
    if not told:
        raise InputError(say("report.page.nothing"), path=asked.folders[0])
    names, stems = shown_names(asked), _stems([part.folders[0].name for part in told])

    def make(stem: str, part: Given) -> Entry:
        kept = target / "notebooks" / stem
        executed = [
            execute(notebook, parameters | known_parameters(notebook, more), kept / notebook.name)
            for notebook, parameters in chosen(part)
        ]
        its = part.runs[0].manifest.title if part.runs else part.studies[0].name
        page = build_page([read_notebook(path) for path in executed], its, show_code=show_code)
        page.home = Path(os.path.relpath(front, target)).as_posix()
        write_page("index.html.j2", target / f"{stem}.html", {"page": page}, names)
        return _entry(f"{below}{stem}.html", page, part)

    entries: list[Entry] = []
    # A notebook runs in a process of its own: threads only wait for them.
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, os.cpu_count() or 1)) as pool:
        for entry in pool.map(make, stems, told):
            progress(len(entries), len(told), str(entry.run["run"]))
            entries.append(entry)
    progress(len(told), len(told), "")
    left_out = [part.folders[0].name for part in parts if not chosen(part)]
    return _write_index(front, entries, title or say("index.title", n=len(entries)), left_out, names)


def _write_index(out: Path, entries: Sequence[Entry], title: str, left_out: Sequence[str], names: Data) -> Path:
    glyphs = Glyphs()
    runs = [entry.run for entry in entries]
    findings = [
        replace(one, page=entry.file, finding={**one.finding, "run": entry.run["run"]})
        for entry in entries
        for one in entry.page.findings
    ]
    groups = summary.groups(findings)
    checks = [{**check, "source": entry.run["run"]} for entry in entries for check in entry.page.distinct_checks]
    resources = {
        "title": title, "count": len(entries), "answer": _answer(entries), "table": table_html(entries),
        "figures": _multiples(entries, glyphs), "glyphs": glyphs,
        "findings": summary_blocks.all_findings_html(groups[:6], {}), "judged": bool(groups),
        "trust": summary_blocks.trust_html(checks), "source": summary_blocks.source_html(runs), "left_out": left_out,
    }  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(without_paths(page_text("runs.html.j2", resources), names), encoding="utf-8")
    return out


def _multiples(entries: Sequence[Entry], glyphs: Glyphs) -> list[str]:
    """A figure a machine and workload in which several runs were measured: a panel a run, without paced loads."""
    rows = [
        {**load, "run": entry.run["run"], "machine": entry.machine}
        for entry in entries
        for load in entry.figures.get("loads") or ()
        if not load["paced"]
    ]
    table = pd.DataFrame(rows)
    made: list[str] = []
    for (machine, lengths), group in table.groupby(["machine", "lengths"], sort=False) if rows else ():
        if group["run"].nunique() < 2:
            continue
        figure = plot_run_multiples(group, of=f"{lengths}, {machine}")
        document = svg.svg_of(figure)
        told = describe(figure)
        drawing = svg.inline_svg(document, f"m{len(made)}", told["alt"], glyphs)
        made.append(figure_block(drawing, told["title"]))
        style.close(figure)
    return made


def _answer(entries: Sequence[Entry]) -> str:
    """What the runs of each machine range over."""
    lines = []
    for machine in in_order(entry.machine for entry in entries):
        mine = [entry for entry in entries if entry.machine == machine]
        known = sorted(
            (one for one in mine if one.best), key=lambda one: float((one.best or {})["output_tokens_per_s"])
        )
        if not known:
            lines.append(say("index.answer.none", machine=machine, n=len(mine)))
            continue
        low, high = known[0].best or {}, known[-1].best or {}
        fields = {
            "machine": machine, "n": len(mine), "run": known[-1].run["run"], "low_run": known[0].run["run"],
            "rate": units.show_count(high["output_tokens_per_s"]), "low": units.show_count(low["output_tokens_per_s"]),
            "load": f"{high['lengths']} {high['load']}", "low_load": f"{low['lengths']} {low['load']}",
        }  # fmt: skip
        kind = "several" if len(known) > 1 else "one" if len(mine) > 1 else "alone"
        lines.append(say(f"index.answer.{kind}", **fields))
    return summary_blocks.answer_html([{"sentences": lines}])


def _entry(file: str, page: Page, part: Given) -> Entry:
    name = part.folders[0].name
    runs: list[Data] = list(page.runs)
    told = next((run for run in runs if run["run"] == name), runs[0] if runs else {})
    figures: dict[str, Any] = {}
    for answer in page.answers:
        for of, values in answer.get("runs", {}).items():
            if of == name or of.startswith(f"{name} ("):
                figures = {**values, **figures}
    return Entry(file, page, {**told, "run": name}, figures)


def _stems(names: Sequence[str]) -> list[str]:
    """File names for runs: what a name holds beside letters, digits, dots and dashes becomes a dash; each another."""
    made: list[str] = []
    for name in names:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
        stem = f"{stem}-run" if stem.lower() == "index" else stem
        made.append(stem if stem not in made else f"{stem}-{len(made) + 1}")
    return made
