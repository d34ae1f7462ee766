"""A server that somebody else started: asked who it is, measured, and otherwise left alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perflab.capture import http
from perflab.capture.metrics import cache_config
from perflab.errors import CaptureError, InputError
from perflab.experiment.attaching import is_loopback
from perflab.experiment.spec import Experiment
from perflab.messages import say

_PATIENCE_S = 10.0


@dataclass(frozen=True)
class AttachedServer:
    """A running server of anybody, in the place of `engine.Server`.

    Attributes
    ----------
    served_name
        The model's name in its API.
    version
        vLLM's, as it says.
    cache
        Settings of its KV cache, from `/metrics`; empty where it does not report them.
    max_model_len
        Of the model, where it says so.
    """

    url: str
    served_name: str
    version: str
    cache: dict[str, Any]
    max_model_len: int | None
    reports_metrics: bool

    # Whether its process lives cannot be seen from here; whether it answers is `healthy`.
    running = True
    ending = "is not a process of perflab"

    @property
    def healthy(self) -> bool:
        """Whether it says that its engine works."""
        return http.answers(f"{self.url}/health", timeout_s=_PATIENCE_S)

    @property
    def is_local(self) -> bool:
        """Whether its address is one of this machine's own."""
        return is_loopback(self.url)

    @property
    def profiles(self) -> bool:
        """Whether it was started with a profiler: without one, the routes that switch it are not there."""
        try:
            http.get(f"{self.url}/start_profile", timeout_s=_PATIENCE_S)
        except OSError as error:
            # The route takes POST only, and says so of a GET.
            return http.status(error) == 405
        return True

    def cause(self) -> str:
        """What can be said when it no longer works."""
        try:
            http.get(f"{self.url}/health", timeout_s=_PATIENCE_S)
        except OSError as error:
            return say("attached.silent", url=self.url, why=http.why(error))
        return say("attached.answers", url=self.url)

    def settings(self) -> dict[str, Any]:
        """The engine's settings as far as it reports them."""
        found = dict(self.cache)
        if self.max_model_len is not None:
            found["max_model_len"] = self.max_model_len
        return found

    def notes(self, kinds: set[str]) -> Iterator[str]:
        """What a reader has to know; `kinds` are those of the data that will be sent."""
        yield say("attached.what", url=self.url, version=self.version)
        yield say("attached.here" if self.is_local else "attached.elsewhere")
        if not self.reports_metrics:
            yield say("attached.no_metrics")
        caching = self.cache.get("enable_prefix_caching")
        if caching is None:
            yield say("attached.caching_unknown")
        elif caching and kinds - {"prefix_repetition"}:
            yield say("attached.caching_on")


def attach(experiment: Experiment) -> AttachedServer:
    """Find out about the server at `engine.url`; nothing is started or changed.

    Raises
    ------
    CaptureError
        Nothing answers there, what answers is not vLLM, or it is not ready.
    InputError
        It serves other models than the experiment names.
    """
    url = experiment.engine.url
    assert url is not None
    version = _version(url)
    try:
        http.get(f"{url}/health", timeout_s=_PATIENCE_S)
    except OSError as error:
        raise CaptureError(
            f"vLLM {version} at {url} is not well (/health: {http.why(error)}); wait until it is up, or start it again"
        ) from error
    name, length = _served(experiment, url)
    try:
        metrics = http.get(f"{url}/metrics", timeout_s=_PATIENCE_S)
    except OSError:
        metrics = ""
    return AttachedServer(url, name, version, cache_config(metrics), length, "\nvllm:" in metrics)


def _version(url: str) -> str:
    """vLLM's version; raised where the server is none of vLLM's."""
    not_vllm = f"what answers at {url} is not vLLM's server (GET /version: {{}}); correct engine.url"
    try:
        text = http.get(f"{url}/version", timeout_s=_PATIENCE_S)
    except OSError as error:
        if http.status(error) is not None or http.is_garbled(error):
            raise CaptureError(not_vllm.format(http.why(error))) from error
        raise CaptureError(
            f"nothing answers at {url} ({http.why(error)}); start the server there, or correct engine.url"
        ) from error
    found = _json(text)
    version = found.get("version") if isinstance(found, dict) else None
    if not isinstance(version, str):
        raise CaptureError(not_vllm.format("no version in the answer"))
    return version


def _served(experiment: Experiment, url: str) -> tuple[str, int | None]:
    """The model's name there, and its greatest length."""
    key = os.environ.get("OPENAI_API_KEY")
    try:
        text = http.get(f"{url}/v1/models", timeout_s=_PATIENCE_S, bearer=key)
    except OSError as error:
        if http.status(error) in (401, 403):
            how = "refuses the key in OPENAI_API_KEY" if key else "wants an API key: set OPENAI_API_KEY"
            raise CaptureError(f"vLLM at {url} {how}") from error
        raise CaptureError(f"vLLM at {url} does not say what it serves (/v1/models: {http.why(error)})") from error
    answer = _json(text)
    rows = answer.get("data") if isinstance(answer, dict) else None
    models = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    wanted = (experiment.model.served_name, experiment.model.name)
    for row in models:
        if row.get("id") in wanted or row.get("root") == experiment.model.name:
            length = row.get("max_model_len")
            return str(row["id"]), length if isinstance(length, int) else None
    names = ", ".join(str(row.get("id")) for row in models) or "nothing"
    raise InputError(
        f"the server at {url} serves {names}, not {wanted[0]}; correct model, or set model.served_name",
        path=experiment.path,
        line=experiment.lines.get("engine.url"),
    )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
