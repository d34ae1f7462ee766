"""`perflab quantize`: a study of a model's quantizations, planned, run and checked."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from perflab.cli.options import Commands, json_text, own_files, slo_option


def add(commands: Commands) -> None:
    """Add the commands of this module."""
    group = commands.add_parser("quantize", help="memory, accuracy and speed of a model's quantizations")
    parts = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _plan_parser(parts)
    _run_parser(parts)
    _make_parser(parts)
    _check_parser(parts)
    _join_parser(parts)
    _show_parser(parts)


def _plan_parser(parts: Commands) -> None:
    plan = parts.add_parser("plan", help="which variants fit, what they take, which servers will be started")
    _study_arguments(plan)
    plan.add_argument("-o", "--out", type=Path, metavar="DIR", help="folder of the study, to see what is left")
    plan.add_argument("--gpu", metavar="NAME", help="plan for GPUs of that name, as H200 (default: this machine)")
    plan.add_argument("--gpus", type=int, default=1, metavar="N", help="how many of them (default: 1)")
    plan.add_argument("--gpu-memory-gib", type=float, metavar="GIB", help="memory of one, as its driver tells it")
    plan.add_argument("--vllm", metavar="VERSION", help="plan for that version of vLLM (default: the one installed)")
    plan.add_argument("--json", action="store_true", help="one JSON document on stdout")
    plan.set_defaults(command=_plan)


def _run_parser(parts: Commands) -> None:
    run = parts.add_parser("run", help="carry out a study, or go on with one")
    _study_arguments(run)
    run.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="folder of the study, new or begun")
    run.add_argument("--only", choices=("speed", "accuracy", "memory"), help="only this part")
    run.add_argument("--variant", action="extend", nargs="+", default=[], metavar="NAME", help="only these variants")
    run.add_argument("--max-minutes", type=_minutes, metavar="N", help="start no server that would not be done by then")
    run.add_argument(
        "--gpus",
        type=_names,
        default=[],
        metavar="0,1",
        help="several servers at once, one on each of these GPUs",
    )
    run.add_argument("--anyway", action="store_true", help="measure also variants that are known not to fit")
    run.add_argument("--retry", action="store_true", help="try again what came to nothing twice")
    run.add_argument("--json", action="store_true", help="one JSON document on stdout")
    run.set_defaults(command=_run)


def _check_parser(parts: Commands) -> None:
    check = parts.add_parser("check", help="did the quantization that was asked for take effect")
    check.add_argument(
        "paths", nargs="+", metavar="PATH", help="server log, trace, run directory, recorded run's name, or study"
    )
    check.add_argument("--asked", metavar="FORMAT", help="what was asked for, as fp8 (default: as they say)")
    check.add_argument("--config", type=Path, metavar="config.json", help="the model's, where none lies beside")
    check.add_argument("--json", action="store_true", help="one JSON document on stdout")
    check.set_defaults(command=_check)


def _make_parser(parts: Commands) -> None:
    make = parts.add_parser("make", help="make the checkpoints of a study with llm-compressor")
    _study_arguments(make)
    make.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="folder of the study, new or begun")
    make.add_argument("--variant", action="extend", nargs="+", default=[], metavar="NAME", help="only these variants")
    make.add_argument(
        "--algorithm", choices=("rtn", "gptq", "awq", "smoothquant-gptq"),
        help="how values are chosen (default: gptq for 4-bit weights, rtn for 8-bit ones)",
    )  # fmt: skip
    make.add_argument("--json", action="store_true", help="one JSON document on stdout")
    make.set_defaults(command=_make)


def _join_parser(parts: Commands) -> None:
    join = parts.add_parser("join", help="put folders of one study, from several machines or visits, into one")
    join.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folder of the study")
    join.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="where to, new or one of the study")
    join.add_argument("--json", action="store_true", help="one JSON document on stdout")
    join.set_defaults(command=_join)


def _show_parser(parts: Commands) -> None:
    show = parts.add_parser("show", help="memory, accuracy and speed of variants side by side, why, and what to take")
    show.add_argument(
        "names", nargs="+", metavar="STUDY|RUN", help="folder of a study, run directory, or the name of a recorded one"
    )
    slo_option(show)
    show.add_argument("--no-why", action="store_false", dest="why", help="leave traces alone: faster, without reasons")
    show.add_argument("--json", action="store_true", help="one JSON document on stdout")
    own_files(show, rules=False)
    show.set_defaults(command=_show)


def _study_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", type=Path, metavar="STUDY.yaml")
    parser.add_argument(
        "--set", action="append", default=[], dest="changes", metavar="KEY=VALUE",
        help="change a value of the file, as server_runs=1; may be repeated",
    )  # fmt: skip


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes") from error
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return value


def _plan(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.experiment.study_file import read_study
    from perflab.tasks.quantize.machine import named_machine
    from perflab.tasks.quantize.plan import plan_study

    study = read_study(args.study, args.changes)
    machine = named_machine(args.gpu, args.gpus, args.gpu_memory_gib) if args.gpu else None
    found = plan_study(study, args.out, machine=machine, version=args.vllm)
    print(json_text(found.to_json()) if args.json else terminal.quantize_plan(found))
    return 0 if found.fitting else 2


def _run(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.experiment.study_file import read_study
    from perflab.tasks.quantize.run import run_study

    study = read_study(args.study, args.changes)
    progress = terminal.ProgressPrinter(sys.stderr)
    outcome = run_study(
        study,
        args.out,
        progress,
        only=args.only,
        variants=args.variant,
        max_minutes=args.max_minutes,
        retry=args.retry,
        anyway=args.anyway,
        gpus=args.gpus,
    )
    progress.close()
    print(json_text(outcome.to_json()) if args.json else terminal.quantize_outcome(outcome))
    return 2 if outcome.failed and not outcome.did else 0


def _check(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.tasks.model_config import read_config
    from perflab.tasks.quantize.check import check

    config = None if args.config is None else read_config(args.config)
    report = check(args.paths, asked=args.asked, config=config)
    print(json_text(report.to_json()) if args.json else terminal.quantize_check(report))
    return 0 if report.ok else 1


def _make(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.experiment.study_file import read_study
    from perflab.tasks.quantize.make import make_checkpoints

    study = read_study(args.study, args.changes)
    made = make_checkpoints(
        study,
        args.out,
        lambda what: print(what, file=sys.stderr, flush=True),
        variants=args.variant,
        algorithm=args.algorithm,
    )
    print(json_text(made.to_json()) if args.json else terminal.quantize_made(made))
    return 2 if made.failed else 0


def _join(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.tasks.quantize.merging import merge_studies

    merged = merge_studies(args.folders, args.out)
    print(json_text(merged.to_json()) if args.json else terminal.quantize_merged(merged))
    return 0


def _show(args: argparse.Namespace) -> int:
    from perflab import terminal
    from perflab.tasks.quantize.tradeoffs import tradeoffs

    report = tradeoffs(args.names, why=args.why, slos=dict(args.slo), thresholds=args.thresholds)
    print(json_text(report.to_json()) if args.json else terminal.tradeoffs(report))
    return 0
