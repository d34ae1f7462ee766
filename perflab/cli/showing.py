"""Commands that show: report, workshop, lab."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from perflab.cli.options import Commands, own_files
from perflab.errors import InputError


def add(commands: Commands) -> None:
    """Add the commands of this module."""
    report = commands.add_parser("report", help="one self-contained HTML report over runs, or a folder of pages")
    report.add_argument(
        "runs", nargs="*", metavar="RUN", help="run directory, recorded run's name, or quantization study"
    )
    report.add_argument(
        "--compare",
        nargs=2,
        metavar=("BASELINE", "CANDIDATE"),
        help="did it help: two sides, as perflab compare has them",
    )
    report.add_argument(
        "-o", "--out", required=True, metavar="out.html|DIR/",
        help="a file: one page; a folder, or more than 8 runs: a page a run and an index over them",
    )  # fmt: skip
    report.add_argument("--one-page", action="store_true", help="one page however many runs there are")
    report.add_argument("--title", help="title of the report")
    report.add_argument("--show-code", action="store_true", help="show the notebooks' code")
    own_files(report)
    report.set_defaults(command=_report)

    workshop = commands.add_parser("workshop", help="lessons with checked answers, on recorded runs")
    parts = workshop.add_subparsers(metavar="new|list", required=True)
    new = parts.add_parser("new", help="make an attendee's folder: exercises and how to begin")
    new.add_argument("folder", type=Path, metavar="DIR", help="a folder that is not there yet, or empty")
    new.add_argument("--lesson", type=int, metavar="N", help="number of the only lesson wanted (default: all)")
    new.add_argument("--solutions", action="store_true", help="put the solutions beside them, in a folder")
    new.set_defaults(command=_workshop_new)
    parts.add_parser("list", help="the lessons there are").set_defaults(command=_workshop_list)

    lab = commands.add_parser(
        "lab", help="JupyterLab, opened on the start notebook", epilog="Further options are passed on to jupyter lab."
    )
    lab.set_defaults(command=_lab, passes_on=True)


def _report(args: argparse.Namespace) -> int:
    from perflab.messages import say
    from perflab.report import report, report_folder
    from perflab.report.choosing import given
    from perflab.report.index_page import MANY

    asked = given(args.runs, args.compare)  # what is wrong with it is said at once
    out = Path(args.out)
    is_folder = args.out.endswith(("/", "\\")) or out.is_dir() or not out.suffix
    many = len(asked.runs) + len(asked.studies) > MANY and not args.one_page
    own: dict[str, Any] = {"title": args.title, "show_code": args.show_code}
    own |= {"rules": args.rules, "thresholds": args.thresholds, "progress": _say_progress}
    if args.compare and is_folder:
        raise InputError(say("report.page.compare_file"))
    if args.compare or not (is_folder or many):
        report(args.runs, out, compare=args.compare, **own)
        print(f"report: {out}")
        return 0
    index, pages = (out / "index.html", out) if is_folder else (out, out.with_name(f"{out.stem}.pages"))
    report_folder(args.runs, index, pages=pages, **own)
    print(say("index.written", index=str(index), folder=str(pages)))
    return 0


def _say_progress(done: int, of: int, what: str) -> None:
    if what:
        print(f"perflab: {done + 1} of {of}: {what}", file=sys.stderr)


def _workshop_new(args: argparse.Namespace) -> int:
    from perflab.messages import say
    from perflab.workshop.folder import make_folder

    made = make_folder(args.folder, lesson=args.lesson, solutions=args.solutions)
    print(say("workshop.folder.made", n=str(len(made)), folder=str(args.folder), first=shlex.quote(str(made[0]))))
    return 0


def _workshop_list(args: argparse.Namespace) -> int:
    from perflab.workshop.folder import lesson_lines

    print("\n".join(lesson_lines()))
    return 0


def _lab(args: argparse.Namespace) -> int:
    from perflab.lab import open_lab

    return open_lab(args.rest)
