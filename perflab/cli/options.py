"""Options and printing that several commands share."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def objectives(parser: argparse.ArgumentParser) -> None:
    """Objectives of latency, and the price of a GPU hour."""
    slo_option(parser)
    parser.add_argument(
        "--statistic", default="p99", choices=("mean", "p50", "p90", "p95", "p99"),
        help="of each latency, that a load has to keep within the objectives (default: p99)",
    )  # fmt: skip
    parser.add_argument("--price-per-gpu-hour", type=float, metavar="PRICE", help="for the cost of a million tokens")


def slo_option(parser: argparse.ArgumentParser) -> None:
    """Objectives of latency."""
    parser.add_argument(
        "--slo", action="append", default=[], type=_objective, metavar="NAME=MS",
        help="objective: ttft_ms, tpot_ms, e2el_ms or itl_ms, as ttft_ms=500; may be repeated",
    )  # fmt: skip


def _objective(text: str) -> tuple[str, float]:
    name, _, limit = text.partition("=")
    try:
        return name, float(limit)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=MS, as ttft_ms=500") from error


def own_files(parser: argparse.ArgumentParser, *, rules: bool = True) -> None:
    """Rules and thresholds of the reader's own."""
    if rules:
        parser.add_argument(
            "--rules", type=Path, metavar="FILE", help="kernel rules of yours (default: $PERFLAB_RULES)"
        )
    parser.add_argument(
        "--thresholds", type=Path, metavar="FILE", help="thresholds of yours (default: $PERFLAB_THRESHOLDS)"
    )


def percentile(text: str) -> float:
    """A percentile as `99`, or `p99`."""
    value = float(text.removeprefix("p"))
    if not 50 <= value < 100:
        raise argparse.ArgumentTypeError(f"{text} is not from 50 to below 100")
    return value


def json_text(document: dict[str, Any]) -> str:
    """A JSON document as it is printed."""
    return json.dumps(document, allow_nan=False, indent=1)
