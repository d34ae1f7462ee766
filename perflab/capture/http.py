"""Plain HTTP to a server on this machine, past any proxy."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str, timeout_s: float = 10.0) -> str:
    """The body of a GET. Raises `OSError` when there is no answer, or one that is not a success."""
    with _OPENER.open(url, timeout=timeout_s) as answer:
        body: bytes = answer.read()
    return body.decode("utf-8", errors="replace")


def post(url: str, body: dict[str, Any] | None = None, timeout_s: float = 60.0) -> str:
    """The body of the answer to a POST of JSON. Raises `OSError` like `get`."""
    data = b"" if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"Content-Type": "application/json"}
    request = urllib.request.Request(url, data=data, method="POST", headers=headers)
    with _OPENER.open(request, timeout=timeout_s) as answer:
        found: bytes = answer.read()
    return found.decode("utf-8", errors="replace")


def answers(url: str, timeout_s: float = 2.0) -> bool:
    """Whether a GET succeeds."""
    try:
        get(url, timeout_s)
    except OSError:
        return False
    return True


def why(error: OSError) -> str:
    """A failure in a few words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    reason = getattr(error, "reason", None)
    return str(reason or error)
