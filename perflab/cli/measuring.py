"""Commands that make run directories, and what a machine can do: run, import, doctor."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perflab.cli.options import Commands, json_text
from perflab.errors import CaptureError


def add(commands: Commands) -> None:
    """Add the commands of this module."""
    run = commands.add_parser("run", help="measure and profile vLLM as an experiment file says")
    run.add_argument("experiment", type=Path, metavar="EXPERIMENT.yaml")
    run.add_argument("-o", "--out", type=Path, metavar="RUN", help="run directory (default: runs/<name>-<time>)")
    run.add_argument("--dry-run", action="store_true", help="print the plan and start nothing")
    run.add_argument(
        "--set",
        action="append",
        default=[],
        dest="changes",
        metavar="KEY=VALUE",
        help="change a value of the file, as engine.args.enforce_eager=false; may be repeated",
    )
    run.set_defaults(command=_run)

    imp = commands.add_parser("import", help="make a run directory of traces, bench results, metrics and logs")
    imp.add_argument("paths", nargs="+", type=Path, metavar="PATH")
    imp.add_argument("-o", "--out", type=Path, required=True, metavar="RUN")
    imp.add_argument("--title", help="title of the run (default: the folder's name)")
    imp.add_argument("--note", action="append", default=[], help="a remark a reader needs; may be repeated")
    imp.add_argument("--pack", action="store_true", help="store text files and traces xz-compressed")
    imp.set_defaults(command=_import)

    doctor = commands.add_parser("doctor", help="what this machine can do, and how to get the rest")
    doctor.add_argument("--json", action="store_true", help="one JSON document on stdout")
    doctor.add_argument(
        "--require",
        action="append",
        default=[],
        choices=("run", "profile", "gpu"),
        help="exit with status 2 where this is not possible; may be repeated",
    )
    doctor.set_defaults(command=_doctor)


def _run(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.experiment import read_experiment
    from perflab.tasks.capture import dry_run, run_experiment, timestamp

    experiment = read_experiment(args.experiment, args.changes)
    if args.dry_run:
        print(terminal.plan(dry_run(experiment)))
        return 0
    out = args.out or Path("runs") / f"{experiment.name}-{timestamp()}"
    progress = terminal.ProgressPrinter(sys.stderr)
    run = run_experiment(experiment, out, progress)
    progress.close()
    print(terminal.run_outcome(run))
    if run.manifest.status == "complete":
        return 0
    print(f"perflab: {run.manifest.reason}", file=sys.stderr)
    return 2


def _import(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.tasks.imports import import_files

    run = import_files(args.paths, args.out, title=args.title, notes=args.note, pack=args.pack)
    print(terminal.run_outcome(run))
    return 0


def _doctor(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.tasks.doctor import doctor, lacking

    result = doctor()
    print(json_text(result.to_json()) if args.json else terminal.doctor(result))
    if (why := lacking(result, args.require)) is not None:
        raise CaptureError(why)
    return 0
