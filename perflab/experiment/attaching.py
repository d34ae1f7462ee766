"""The part of an experiment file that names a server which runs already."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from perflab.experiment.nodes import Table
from perflab.experiment.spec import ProfilePass, Workload


def is_loopback(url: str) -> bool:
    """Whether a URL's host is this machine by its loopback address."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_url(engine: Table, lines: dict[str, int]) -> str | None:
    """`engine.url`, without a trailing slash; None where perflab starts the server itself."""
    if "url" not in engine:
        for key in ("allow_remote", "trace_dir"):
            if key in engine:
                engine.complain(key, "is only for a server that runs already, which engine.url names")
        return None
    given = (engine.text("url") or "").strip()
    try:
        parts = urlsplit(given)
        port = parts.port
    except ValueError:
        engine.complain("url", "is no URL; write it like http://127.0.0.1:8000")
    if parts.username or parts.password:
        # The URL itself is not repeated here.
        engine.complain("url", "holds credentials; set OPENAI_API_KEY in the shell instead, which no run records")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        engine.complain("url", f"is {given!r}; write it like http://127.0.0.1:8000")
    if parts.path.rstrip("/") or parts.query or parts.fragment:
        engine.complain("url", f"is {given!r}; give the server's root, without a path: {parts.scheme}://{parts.netloc}")
    if not is_loopback(given) and not engine.flag("allow_remote", False):
        engine.complain("url", f"is on another machine ({parts.hostname}); if that is meant, say allow_remote: true")
    lines["engine.url"] = engine.lines["url"]
    return given.rstrip("/")


def read_trace_dir(engine: Table) -> Path | None:
    """`engine.trace_dir`: where the server writes its traces, if this machine sees it."""
    if "trace_dir" not in engine:
        return None
    folder = Path(engine.text("trace_dir") or "").expanduser()
    folder = folder if folder.is_absolute() else engine.source.path.parent / folder
    if not folder.is_dir():
        engine.complain("trace_dir", f"is {str(folder)!r}, and there is no such folder")
    return folder.resolve()


def check_attached(top: Table, engine: Table, workloads: Sequence[Workload], profiles: Sequence[ProfilePass]) -> None:
    """Refuse what only the one who starts a server can decide."""
    for key in ("args", "startup_deadline_s"):
        if key in engine:
            engine.complain(key, "cannot be set: the server at engine.url runs already")
    for key in ("server_runs", "prefix_caching"):
        if key in top:
            top.complain(key, "cannot be set: the server at engine.url runs already")
    for workload in workloads:
        if workload.kind != "serve":
            top.complain("workloads", f"({workload.name}): kind {workload.kind} builds an engine of its own")
    for one in profiles:
        if one.kind != "torch" or getattr(one, "teacher", False):
            what = "a teacher pass" if one.kind == "torch" else f"kind {one.kind}"
            top.complain("profile", f"({one.id}): {what} needs a server that perflab starts")
