"""The server's `/metrics`: whole before and after each point, and a part of it again and again during it.

While a point runs, only gauges and counters of vLLM are kept (`vllm:...`): not its histograms, not the
`_created` times, not the `..._info` labels, and nothing of the Python process or of HTTP. These are the ones
that tell how a point went on: requests running and waiting, KV cache use, tokens, cache hits, preemptions.
"""

from __future__ import annotations

import ast
import json
import re
import time
from pathlib import Path
from typing import Any

from perflab.capture import http
from perflab.capture.sampler import Sampler

_SERIES = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_KEPT_KINDS = frozenset({"gauge", "counter"})
# Of `cache_config_info`: settings worth comparing, which the log does not tell.
_CACHE_SETTINGS = (
    "block_size", "num_gpu_blocks", "num_gpu_blocks_override", "kv_cache_size_tokens", "kv_cache_max_concurrency",
    "kv_cache_memory_bytes", "gpu_memory_utilization", "cache_dtype", "enable_prefix_caching",
    "prefix_caching_hash_algo", "swap_space_bytes", "cpu_kvcache_space_bytes",
)  # fmt: skip


def scrape(url: str) -> str:
    """The whole text of `/metrics`. Raises `OSError`."""
    return http.get(f"{url}/metrics")


def settled(url: str, patience_s: float = 2.0) -> str:
    """`/metrics` once no request runs: the last step's counts arrive a moment after the last token."""
    end = time.monotonic() + patience_s
    while True:
        text = scrape(url)
        busy = total(text, "vllm:num_requests_running") or total(text, "vllm:num_requests_waiting")
        if not busy or time.monotonic() > end:
            return text
        time.sleep(0.05)


def total(text: str, name: str) -> float | None:
    """A metric summed over its labels; None where it is absent."""
    found = [
        float(match["value"]) for match in map(_SERIES.match, text.splitlines()) if match and match["name"] == name
    ]
    return sum(found) if found else None


def increase(before: str, after: str, name: str) -> float | None:
    """How much a counter grew; None where either text lacks it."""
    first, last = total(before, name), total(after, name)
    return None if first is None or last is None else last - first


def cached_prompt_tokens(before: str, after: str) -> tuple[float, float] | None:
    """Prompt tokens found in the prefix cache, and prompt tokens looked up; None where not reported."""
    hits = increase(before, after, "vllm:prefix_cache_hits_total")
    queries = increase(before, after, "vllm:prefix_cache_queries_total")
    return None if hits is None or queries is None else (hits, queries)


def moving_part(text: str) -> str:
    """vLLM's gauges and counters, as described at the top of this module."""
    kinds: dict[str, str] = {}
    kept: list[str] = []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(maxsplit=3)
            kinds[name] = kind.strip()
        elif line.startswith("vllm:"):
            name = line.partition("{")[0].partition(" ")[0]
            if kinds.get(name) in _KEPT_KINDS and not name.endswith(("_created", "_info")):
                kept.append(line)
    return "\n".join(kept) + "\n"


def cache_config(text: str) -> dict[str, Any]:
    """Settings of the KV cache as the engine resolved them, from the labels of `vllm:cache_config_info`."""
    for line in text.splitlines():
        if line.startswith("vllm:cache_config_info{"):
            labels = dict(_LABEL.findall(line))
            return {name: _value(labels[name]) for name in _CACHE_SETTINGS if name in labels}
    return {}


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


class MetricsSampler(Sampler):
    """Writes `{"t_ns": .., "text": ..}` a line while a point runs."""

    def __init__(self, url: str, file: Path, interval_s: float) -> None:
        super().__init__(file, interval_s)
        self.url = url
        self.latest = ""

    def sample(self) -> list[str]:
        """One scrape, stamped with the middle of the time it took."""
        begin = time.time_ns()
        text = http.get(f"{self.url}/metrics", timeout_s=5.0)
        t_ns = (begin + time.time_ns()) // 2
        self.latest = text
        return [json.dumps({"t_ns": t_ns, "text": moving_part(text)})]
