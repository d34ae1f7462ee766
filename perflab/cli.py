"""The command line: arguments and printing only."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perflab import __version__
from perflab.errors import CaptureError, PerflabError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status: 0 done, 1 what --fail-on names, 2 bad usage, input or a failed run."""
    parser = _parser()
    args, rest = parser.parse_known_args(argv)
    # What follows `lab` is JupyterLab's own; argparse would take its options for unknown ones of ours.
    if rest and args.command is not _lab:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    args.rest = rest
    try:
        status: int = args.command(args)
        return status
    except PerflabError as error:
        print(f"perflab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("perflab: stopped by the user; what was measured is kept", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="perflab", description="Where do time and memory go in vLLM, what to change, did it help."
    )
    parser.add_argument("--version", action="version", version=f"perflab {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

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

    past = commands.add_parser("history", help="figures of many runs over time: levels, changes, drifts")
    past.add_argument("folder", type=Path, metavar="DIR", help="folder that holds run directories, at any depth")
    past.add_argument("--metric", action="extend", nargs="+", default=[], help="figures to follow, as ttft_p99_ms")
    past.add_argument("--json", action="store_true", help="one JSON document on stdout")
    past.set_defaults(command=_history)

    for name, help_text, command in (
        ("breakdown", "where the GPU time goes, per rank, phase and category", _breakdown),
        ("latency", "TTFT, TPOT, ITL, E2EL and throughput of every measured point", _latency),
    ):
        sub = commands.add_parser(name, help=help_text)
        sub.add_argument("paths", nargs="+", metavar="PATH", help="run directory, recorded run's name, or file")
        sub.add_argument("--json", action="store_true", help="one JSON document on stdout")
        if name == "breakdown":
            sub.add_argument("--teacher", action="store_true", help="the teacher passes, recorded without CUDA graphs")
            sub.add_argument(
                "--attribution", action=argparse.BooleanOptionalAction,
                help="operator, layer and part of the model of every kernel; by default where traces are small",
            )  # fmt: skip
        if name == "latency":
            sub.add_argument(
                "--explain", nargs="?", type=_percentile, const=99.0, metavar="PERCENTILE",
                help="why requests from this percentile on were slow (default: 99); needs step records",
            )  # fmt: skip
            _objectives(sub)
        _own_files(sub, rules=name == "breakdown")
        sub.set_defaults(command=command)

    pair = commands.add_parser(
        "compare", help="did it help: two sides, their metrics with intervals, where time changed"
    )
    pair.add_argument(
        "baseline", metavar="BASELINE",
        help="run directory, recorded run's name, result file or trace; several with commas, or a folder of runs",
    )  # fmt: skip
    pair.add_argument("candidate", metavar="CANDIDATE", help="the same")
    pair.add_argument(
        "--varied", action="extend", nargs="+", default=[], metavar="NAME", help="settings meant to differ"
    )
    pair.add_argument(
        "--primary", metavar="METRIC", help="the metric that decides, as ttft_p99_ms (default: tpot_p50_ms)"
    )
    pair.add_argument("--point", metavar="LOAD", help="where it decides, as c32 (default: the point with most runs)")
    pair.add_argument(
        "--fail-on", action="append", default=[], choices=("regression", "undecided"), dest="fail_on",
        help="exit with status 1 when the deciding metric is worse; with undecided, also when there is no verdict",
    )  # fmt: skip
    pair.add_argument("--json", action="store_true", help="one JSON document on stdout")
    _own_files(pair)
    pair.set_defaults(command=_compare)

    report = commands.add_parser("report", help="one self-contained HTML report over runs")
    report.add_argument("runs", nargs="+", metavar="RUN", help="run directory or recorded run's name")
    report.add_argument("-o", "--out", type=Path, required=True, metavar="out.html")
    report.add_argument("--title", help="title of the report")
    report.add_argument("--show-code", action="store_true", help="show the notebooks' code")
    _own_files(report)
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
    lab.set_defaults(command=_lab)
    return parser


def _objectives(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--slo", action="append", default=[], type=_objective, metavar="NAME=MS",
        help="objective: ttft_ms, tpot_ms, e2el_ms or itl_ms, as ttft_ms=500; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--statistic", default="p99", choices=("mean", "p50", "p90", "p95", "p99"),
        help="of each latency, that a load has to keep within the objectives (default: p99)",
    )  # fmt: skip
    parser.add_argument("--price-per-gpu-hour", type=float, metavar="PRICE", help="for the cost of a million tokens")


def _objective(text: str) -> tuple[str, float]:
    name, _, limit = text.partition("=")
    try:
        return name, float(limit)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=MS, as ttft_ms=500") from error


def _own_files(parser: argparse.ArgumentParser, *, rules: bool = True) -> None:
    if rules:
        parser.add_argument(
            "--rules", type=Path, metavar="FILE", help="kernel rules of yours (default: $PERFLAB_RULES)"
        )
    parser.add_argument(
        "--thresholds", type=Path, metavar="FILE", help="thresholds of yours (default: $PERFLAB_THRESHOLDS)"
    )


def _percentile(text: str) -> float:
    """`99`, or `p99`."""
    value = float(text.removeprefix("p"))
    if not 50 <= value < 100:
        raise argparse.ArgumentTypeError(f"{text} is not from 50 to below 100")
    return value


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
    print(_json(result.to_json()) if args.json else terminal.doctor(result))
    if (why := lacking(result, args.require)) is not None:
        raise CaptureError(why)
    return 0


def _history(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.tasks.history import history

    result = history(args.folder, args.metric)
    print(_json(result.to_json()) if args.json else terminal.history(result))
    return 0


def _breakdown(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.tasks.breakdown import breakdown

    result = breakdown(
        args.paths,
        teacher=args.teacher,
        rules=args.rules,
        thresholds=args.thresholds,
        attribution=args.attribution,
    )
    print(_json(result.to_json()) if args.json else terminal.breakdown(result))
    if not any(rank.window_ns for rank in result.ranks):
        print("perflab: no activity was recorded in any trace; the checks say why", file=sys.stderr)
        return 2
    return 0


def _latency(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.tasks.latency import latency

    result = latency(
        args.paths,
        thresholds=args.thresholds,
        slos=dict(args.slo),
        statistic=args.statistic,
        price_per_gpu_hour=args.price_per_gpu_hour,
    )
    slow = None
    if args.explain is not None:
        from perflab.tasks.slow_requests import slow_requests

        slow = slow_requests(args.paths, percentile=args.explain, thresholds=args.thresholds)
    if args.json:
        print(_json(result.to_json() | ({} if slow is None else {"slow_requests": slow.to_json()})))
    else:
        texts = [terminal.latency(result), *([] if slow is None else [terminal.slow_requests(slow)])]
        print("\n\n".join(text for text in texts if text))
    return 0


def _compare(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.tasks.compare import compare

    result = compare(
        args.baseline,
        args.candidate,
        varied=args.varied,
        primary=args.primary,
        point=args.point,
        rules=args.rules,
        thresholds=args.thresholds,
    )
    print(_json(result.to_json()) if args.json else terminal.compare(result))
    status, why = result.gate(args.fail_on)
    if why:
        print(f"perflab: {why}", file=sys.stderr)
    return status


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


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, allow_nan=False, indent=1)
