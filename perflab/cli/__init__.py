"""The command line: arguments and printing only. One module for each group of commands, each with an `add`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from perflab import __version__
from perflab.cli import measuring, quantize, reading, showing
from perflab.errors import PerflabError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status: 0 done, 1 what --fail-on names, 2 bad usage, input or a failed run."""
    parser = _parser()
    args, rest = parser.parse_known_args(argv)
    # What follows `lab` is JupyterLab's own; argparse would take its options for unknown ones of ours.
    if rest and not args.passes_on:
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
    parser.set_defaults(passes_on=False)
    parser.add_argument("--version", action="version", version=f"perflab {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for group in (measuring, reading, quantize, showing):
        group.add(commands)
    return parser
