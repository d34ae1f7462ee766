"""Raw exports of perf_analyzer, which GenAI-Perf drives: `profile_export.json`, one result an experiment.

Each request holds when it was sent, and when each response came and its text. A chunk without text (the role that
chat servers send first, the end mark) is no token (vllm-project/vllm issue 3759). Tokens are known only where the
server reported usage.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

from perflab.errors import InputError
from perflab.read.bench import json_records
from perflab.read.bench_result import BenchMeta, BenchResult
from perflab.read.clients.common import Row, at, count, moment, positive, result_of_rows, text
from perflab.read.files import read_text, refusal

_EVENT = re.compile(r"^data:\s*(\{.*\})\s*$", re.MULTILINE)
_TEXTS = ("content", "reasoning_content", "reasoning", "text")


def read_perf_analyzer(path: str | Path) -> list[BenchResult]:
    """Every experiment of an export.

    Raises
    ------
    InputError
        When it is not such a file, or is damaged.
    """
    return [_result(document, one, Path(path)) for document, one in _experiments(Path(path))]


def perf_analyzer_part(path: Path, place: int) -> str:
    """The export with only the experiment at `place`, from 0."""
    document, one = _experiments(path)[place]
    return json.dumps({**document, "experiments": [one]})


def _experiments(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    body, damage = read_text(path)
    documents, _ = json_records(body, damage, path, "perf_analyzer")
    found = []
    for document in documents:
        parts = document.get("experiments")
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            raise refusal(path, "perf_analyzer")
        found += [(document, part) for part in parts]
    if not found:
        raise InputError("holds no experiment", path=path)
    return found


def _result(document: dict[str, Any], one: dict[str, Any], path: Path) -> BenchResult:
    rows = [_row(request) for request in one.get("requests") or () if isinstance(request, dict)]
    mode, value = text(at(one, "experiment", "mode")), positive(at(one, "experiment", "value"))
    result = result_of_rows(
        rows, path=path, client="GenAI-Perf", clock="epoch",
        meta=BenchMeta(
            backend=text(document.get("service_kind")), request_rate=value if mode == "request_rate" else None,
            max_concurrency=int(value) if value and mode == "concurrency" else None,
        ),
    )  # fmt: skip
    return dataclasses.replace(result, marks=("texts_only",) if result.total_output_tokens is None else ())


def _row(request: dict[str, Any]) -> Row:
    times, outputs = request.get("response_timestamps"), request.get("response_outputs")
    told = list(zip(times, outputs, strict=False)) if isinstance(times, list) and isinstance(outputs, list) else []
    arrived, prompt, output = [], None, None
    for when, response in told:
        has_text, usage = _read(response)
        prompt, output = count(at(usage, "prompt_tokens")) or prompt, count(at(usage, "completion_tokens")) or output
        if has_text and (moment_ns := moment(when, 1)) is not None:
            arrived.append(moment_ns)
    chunks = arrived if len(arrived) > 1 and arrived == sorted(arrived) else []
    return Row(
        arrival_ns=moment(request.get("timestamp"), 1), first_ns=arrived[0] if arrived else None,
        finish_ns=arrived[-1] if arrived else None, prompt_tokens=prompt, output_tokens=output, ok=bool(arrived),
        chunks=chunks,
    )  # fmt: skip


def _read(response: Any) -> tuple[bool, Any]:
    """Whether a response holds text, and the usage it reports."""
    if text(at(response, "text_output")):
        return True, None
    body = at(response, "response")
    events = _EVENT.findall(body) or [body] if isinstance(body, str) else []
    has_text, usage = False, None
    for event in events:
        try:
            found = json.loads(event)
        except (json.JSONDecodeError, RecursionError):
            continue
        usage = at(found, "usage") or usage
        choice = at(found, "choices", 0)
        spoken = (at(part, name) for part in (choice, at(choice, "delta"), at(choice, "message")) for name in _TEXTS)
        has_text |= any(isinstance(words, str) and words for words in spoken)
    return has_text, usage
