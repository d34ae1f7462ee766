"""What capture itself needs of a server's log: how far start-up is, and the settings in use.

The report's view of a log is `perflab.read`'s; what went wrong, both take from `perflab.analysis.log.problems`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

# In the order they come. Each is logged once at most; which ones come depends on the settings.
PHASES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("configured", re.compile(r"Initializing a V1 LLM engine|Initializing an LLM engine")),
    ("loading", re.compile(r"Starting to load model|Loading safetensors checkpoint shards")),
    ("loaded", re.compile(r"Loading weights took|Model loading took")),
    ("compiling", re.compile(r"Dynamo bytecode transform time|Start compiling|Compiling a graph")),
    ("kv_cache", re.compile(r"KV cache size: [\d,]+ tokens|# GPU blocks: ")),
    ("capturing", re.compile(r"Capturing CUDA graphs")),
    ("initialized", re.compile(r"init engine \(profile")),
    ("serving", re.compile(r"Application startup complete")),
)

_BANNER = re.compile(r"Initializing a V1 LLM engine \(v(?P<version>[^)]+)\) with config: (?P<config>.*)$")
_GIVEN = re.compile(r"non-default args: \{(?P<given>.*)\}\s*$")
_LINES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("max_num_batched_tokens", re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)")),
    ("max_model_len", re.compile(r"Using max model len (\d+)")),
    ("attention_backend", re.compile(r"Using (\S+) attention backend")),
)


def phase_of(line: str) -> str | None:
    """The phase of start-up that a line announces."""
    return next((name for name, pattern in PHASES if pattern.search(line)), None)


def settings(lines: Iterable[str]) -> dict[str, Any]:
    """Settings as vLLM logged them: its banner, what the user gave, and lines that tell resolved values.

    Simple values come as Python's; nested configurations stay the text they were logged as.
    """
    given: dict[str, Any] = {}
    banner: dict[str, Any] = {}
    told: dict[str, Any] = {}
    for line in lines:
        if match := _GIVEN.search(line):
            given.update(_given(match["given"]))
        elif match := _BANNER.search(line):
            banner = _banner(match["config"])
        else:
            for name, pattern in _LINES:
                if found := pattern.search(line):
                    told[name] = _value(found[1])
    for name in ("host", "port", "model_tag", "profiler_config", "uds"):
        given.pop(name, None)
    if "max_seq_len" in banner:
        banner["max_model_len"] = banner.pop("max_seq_len")
    return {key: _plain(value) for key, value in {**given, **told, **banner}.items()}


def _pieces(text: str) -> Iterator[str]:
    """`a=1, b=C(x=[1, 2]), c='d, e'` -> its parts between the commas of the outermost level."""
    depth, quote, start = 0, "", 0
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote and text[index - 1] != "\\" else quote
        elif char in "'\"":
            quote = char
        elif char in "([{<":
            depth += 1
        elif char in ")]}>":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:index].strip()
            start = index + 1
    yield text[start:].strip()


def _banner(config: str) -> dict[str, Any]:
    """`model='m', seed=0` -> the settings."""
    pairs = (piece.partition("=") for piece in _pieces(config))
    return {name: _value(value) for name, equals, value in pairs if equals and name.isidentifier()}


def _given(mapping: str) -> dict[str, Any]:
    """`'model': 'm', 'profiler_config': ProfilerConfig(...)` -> the settings."""
    pairs = (piece.partition(": ") for piece in _pieces(mapping))
    return {name.strip("'\""): _value(value) for name, colon, value in pairs if colon}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text.removeprefix("torch.")


def _plain(value: Any) -> Any:
    """A value JSON has; whatever else as text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
