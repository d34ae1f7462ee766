"""Plain HTTP to a server, past any proxy."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class GarbledError(OSError):
    """What answers does not speak HTTP."""


def get(url: str, timeout_s: float = 10.0, bearer: str | None = None) -> str:
    """The body of a GET. Raises `OSError` when there is no answer, or one that is not a success.

    `bearer` is sent as authorization, and not on to where the answer may redirect.
    """
    request = urllib.request.Request(url)
    if bearer:
        request.add_unredirected_header("Authorization", f"Bearer {bearer}")
    return _body(request, timeout_s)


def post(url: str, body: dict[str, Any] | None = None, timeout_s: float = 60.0) -> str:
    """The body of the answer to a POST of JSON. Raises `OSError` like `get`."""
    data = b"" if body is None else json.dumps(body).encode()
    headers = {} if body is None else {"Content-Type": "application/json"}
    return _body(urllib.request.Request(url, data=data, method="POST", headers=headers), timeout_s)


def _body(request: urllib.request.Request, timeout_s: float) -> str:
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            found: bytes = answer.read()
    except http.client.HTTPException as error:
        raise GarbledError(f"no HTTP: {type(error).__name__}") from error
    return found.decode("utf-8", errors="replace")


def answers(url: str, timeout_s: float = 2.0) -> bool:
    """Whether a GET succeeds."""
    try:
        get(url, timeout_s)
    except OSError:
        return False
    return True


def status(error: OSError) -> int | None:
    """The HTTP status of a refusal; None where there was no answer."""
    return error.code if isinstance(error, urllib.error.HTTPError) else None


def is_garbled(error: OSError) -> bool:
    """Whether something answered that is not HTTP."""
    return isinstance(error, GarbledError) or isinstance(getattr(error, "reason", None), http.client.HTTPException)


def why(error: OSError) -> str:
    """A failure in a few words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code}"
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason)
