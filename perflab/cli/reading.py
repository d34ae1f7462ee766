"""Commands that answer questions from runs and files: history, breakdown, latency, compare."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perflab.cli.options import Commands, json_text, objectives, own_files, percentile


def add(commands: Commands) -> None:
    """Add the commands of this module."""
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
                "--explain", nargs="?", type=percentile, const=99.0, metavar="PERCENTILE",
                help="why requests from this percentile on were slow (default: 99); needs step records",
            )  # fmt: skip
            objectives(sub)
        own_files(sub, rules=name == "breakdown")
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
    own_files(pair)
    pair.set_defaults(command=_compare)


def _history(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.tasks.history import history

    result = history(args.folder, args.metric)
    print(json_text(result.to_json()) if args.json else terminal.history(result))
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
    print(json_text(result.to_json()) if args.json else terminal.breakdown(result))
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
        print(json_text(result.to_json() | ({} if slow is None else {"slow_requests": slow.to_json()})))
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
    print(json_text(result.to_json()) if args.json else terminal.compare(result))
    status, why = result.gate(args.fail_on)
    if why:
        print(f"perflab: {why}", file=sys.stderr)
    return status
