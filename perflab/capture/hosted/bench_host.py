"""Runs vLLM's own `vllm bench serve` again and again in one process, in the engine's Python.

Starting the command costs some ten seconds of imports each time. Here vLLM is imported once; each line on
stdin, `{"id": .., "argv": ["vllm", "bench", "serve", ..], "printed": FILE}`, then calls vLLM's own entry
point with that argument list, and what it prints goes to FILE. The answers, a JSON object a line, leave by
the original stdout: `{"ready": true}`, then `{"id": .., "status": 0, "error": null}` for each request.

The end of stdin ends the process, so it does not outlive the perflab that started it.
"""

import contextlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def _printing_to(path: str) -> Iterator[None]:
    """Send everything this process prints, down to file descriptors, to `path`."""
    kept = os.dup(1), os.dup(2)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        _redirect(handle, handle)
        yield
    finally:
        _redirect(*kept)
        for one in (handle, *kept):
            os.close(one)


def _redirect(out: int, err: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(out, 1)
    os.dup2(err, 2)


def _run(argv: list[str], printed: str) -> tuple[int, "str | None"]:
    from vllm.entrypoints.cli.main import main

    sys.argv = list(argv)
    with _printing_to(printed):
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
            return status, None if status == 0 else f"ended with status {status}"
        except Exception as error:
            traceback.print_exc()
            return 1, f"{type(error).__name__}: {error}"
    return 0, None


def main() -> None:
    """Import vLLM, say so, then serve requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")

    def answer(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")

    # What imports print must not be taken for an answer.
    os.dup2(2, 1)
    import vllm.benchmarks.serve
    import vllm.entrypoints.cli.main  # noqa: F401

    answer(ready=True)
    for line in sys.stdin:
        request = json.loads(line)
        status, error = _run(request["argv"], request["printed"])
        answer(id=request["id"], status=status, error=error)


if __name__ == "__main__":
    main()
