"""Make a Kineto trace small without touching what perflab reads: it stays a valid trace, times and order unchanged.

    python data/slim_trace.py TRACE.xz ...        (each file is replaced)

Left out: arrows between launches and kernels (the correlation ids say the same), what the GPU's occupancy was thought
to be, strides and values of arguments, where compiled kernels' sources lay, numbers that only the profiler uses, and
Python frames unless work was launched inside them (those name the modules). Values that stay are copied as text.
Traces without device work stay as they are.
"""

import bisect
import json
import lzma
import sys
from pathlib import Path

import msgspec
from msgspec import Raw

from perflab.read.files import read_text

FLOWS = frozenset(("ac2g", "async_gpu", "fwdbwd"))
LAUNCHES = frozenset(("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver"))
DROPPED_ARGS = frozenset((
    "queued", "context", "registers per thread", "shared memory", "blocks per SM", "warps per SM",
    "est. achieved occupancy %", "memory bandwidth (GB/s)", "cbid", "Record function id", "Ev Idx", "scope",
    "Input Strides", "Concrete Inputs", "num_warps", "num_stages", "kernel_backend", "kernel_name", "kernel_kwargs",
    "kernel_file", "kernel_hash", "Python parent id", "Python id",
))  # fmt: skip
LAUNCH_NAME = ("Launch", "Memcpy", "Memset")
PRESET = 9 | lzma.PRESET_EXTREME

Fields = dict[str, Raw]


def slim(text: str) -> str:
    """The trace without what perflab never reads; `text` itself where there is no device work."""
    whole = msgspec.json.decode(text, type=Fields)
    events = msgspec.json.decode(whole["traceEvents"], type=list[Fields])
    if not any(_text(event, "cat") == "kernel" for event in events):
        return text
    launched = _launches(events)
    kept = [_slim_event(event) for event in events if _is_kept(event, launched)]
    whole["traceEvents"] = Raw(b"[\n" + b",\n".join(msgspec.json.encode(event) for event in kept) + b"\n]")
    return msgspec.json.encode(whole).decode()


def without_operators(text: str) -> str:
    """The trace without the host's operators and the ids that lead to them: launches, kernels and steps stay."""
    whole = msgspec.json.decode(text, type=Fields)
    events = msgspec.json.decode(whole["traceEvents"], type=list[Fields])
    kept = [event for event in events if _text(event, "cat") not in ("cpu_op", "python_function")]
    for event in kept:
        if "args" in event:
            args = msgspec.json.decode(event["args"], type=Fields)
            args.pop("External id", None)
            event["args"] = Raw(msgspec.json.encode(args))
    whole["traceEvents"] = Raw(b"[\n" + b",\n".join(msgspec.json.encode(event) for event in kept) + b"\n]")
    return msgspec.json.encode(whole).decode()


def _is_kept(event: Fields, launched: dict[bytes, list[float]]) -> bool:
    category = _text(event, "cat")
    if category in FLOWS:
        return False
    if category != "python_function" or _text(event, "name").startswith("nn.Module"):
        return True
    # A call into C adds nothing to the frame it was made in.
    if _text(event, "name").startswith("<"):
        return False
    times = launched.get(bytes(event["tid"]), [])
    start = float(bytes(event["ts"]))
    at = bisect.bisect_left(times, start)
    return at < len(times) and times[at] < start + float(bytes(event.get("dur", Raw(b"0"))))


def _slim_event(event: Fields) -> Fields:
    if "args" not in event:
        return event
    args = msgspec.json.decode(event["args"], type=Fields)
    # A compiled kernel's `stream` argument is 0 whatever stream it ran on; that of the kernel itself stays.
    dropped = DROPPED_ARGS | {"stream"} if _text(event, "cat") == "cpu_op" else DROPPED_ARGS
    rest = {name: value for name, value in args.items() if name not in dropped}
    return {name: value for name, value in event.items() if name != "args"} | (
        {"args": Raw(msgspec.json.encode(rest))} if rest else {}
    )


def _launches(events: list[Fields]) -> dict[bytes, list[float]]:
    """When work was launched, by host thread."""
    times: dict[bytes, list[float]] = {}
    for event in events:
        if _text(event, "cat") in LAUNCHES and any(word in _text(event, "name") for word in LAUNCH_NAME):
            times.setdefault(bytes(event["tid"]), []).append(float(bytes(event["ts"])))
    return {thread: sorted(some) for thread, some in times.items()}


def _text(event: Fields, key: str) -> str:
    value = msgspec.json.decode(event[key]) if key in event else None
    return value if isinstance(value, str) else ""


def main(paths: list[Path]) -> None:
    """Replace each file by its slim form."""
    for path in paths:
        before = path.stat().st_size
        packed = lzma.compress(slim(read_text(path)[0]).encode(), preset=PRESET)
        json.loads(lzma.decompress(packed))
        if len(packed) < before:
            path.write_bytes(packed)
        print(f"{path.name}: {before} -> {path.stat().st_size} bytes")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
