"""Commands that show: report, workshop, lab."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from perflab.cli.options import Commands, own_files


def add(commands: Commands) -> None:
    """Add the commands of this module."""
    report = commands.add_parser("report", help="one self-contained HTML report over runs")
    report.add_argument("runs", nargs="+", metavar="RUN", help="run directory or recorded run's name")
    report.add_argument("-o", "--out", type=Path, required=True, metavar="out.html")
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
    from perflab.report import report
    from perflab.tasks.find import find_runs

    runs = find_runs(args.runs)
    print(f"perflab: executing notebooks over {len(runs)} runs", file=sys.stderr)
    paths = [run.path for run in runs]
    report(paths, args.out, title=args.title, show_code=args.show_code, rules=args.rules, thresholds=args.thresholds)
    print(f"report: {args.out}")
    return 0


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
