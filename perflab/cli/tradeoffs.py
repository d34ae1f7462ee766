"""`perflab quantize show`: memory, accuracy and speed of variants side by side, and why."""

from __future__ import annotations

import argparse

from perflab.cli.options import Commands, json_text, own_files, slo_option


def add(parts: Commands) -> None:
    """Add the command to those of `perflab quantize`."""
    show = parts.add_parser("show", help="memory, accuracy and speed of variants side by side, why, and what to take")
    show.add_argument(
        "names", nargs="+", metavar="STUDY|RUN", help="folder of a study, run directory, or the name of a recorded one"
    )
    slo_option(show)
    show.add_argument("--no-why", action="store_false", dest="why", help="leave traces alone: faster, without reasons")
    show.add_argument("--json", action="store_true", help="one JSON document on stdout")
    own_files(show, rules=False)
    show.set_defaults(command=_show)


def _show(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.tasks.quantize.tradeoffs import tradeoffs

    report = tradeoffs(args.names, why=args.why, slos=dict(args.slo), thresholds=args.thresholds)
    print(json_text(report.to_json()) if args.json else terminal.tradeoffs(report))
    return 0
