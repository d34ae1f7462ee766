"""Where the time to first token goes, from the server's own histograms over a point and the client's mean.

vLLM (`v1/metrics/stats.py`) stamps a request when its front end has it (arrival), when the engine queues it, when it is
first scheduled and when the engine hands out its first token. Means of these over the same requests add up:

    client's TTFT = client and network + front end + queue + prefill

- `queue`: request_queue_time_seconds, queued to first scheduled.
- `prefill`: request_prefill_time_seconds, first scheduled to first token; chunks, steps shared with others, and
  preemptions in between are in it.
- `front_end`: time_to_first_token_seconds less those two: reading and tokenizing the prompt, passing it to the engine
  and the token back.
- `outside`: the client's mean less the server's: HTTP, network, the client's own queue of events.

They are means. Which part makes the slowest requests slow they do not tell: a mean of sums is the sum of the means, a
percentile of sums is not. The two histograms of parts count a request when it ends, that of TTFT at its first token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perflab.messages import say

PARTS: tuple[str, ...] = ("queue", "prefill", "front_end", "outside")
_TTFT, _QUEUE, _PREFILL = (
    "time_to_first_token_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
)


@dataclass(frozen=True)
class TtftSplit:
    """Mean time to first token of one point in parts, milliseconds.

    Attributes
    ----------
    client_ms, server_ms
        Both sides' means; the client's is None where it was not measured.
    requests
        How many the server's histogram counts.
    doubts
        Why parts may not be of the same requests, or do not add up; a sentence each.
    """

    server_ms: float
    queue_ms: float
    prefill_ms: float
    front_end_ms: float
    client_ms: float | None
    outside_ms: float | None
    requests: int | None
    doubts: tuple[str, ...] = ()

    def part(self, name: str) -> float | None:
        """One of `PARTS`; None where it is not known."""
        value: float | None = getattr(self, f"{name}_ms")
        return value

    @property
    def largest(self) -> str:
        """The part that takes longest."""
        return max(PARTS, key=lambda name: self.part(name) or 0.0)

    def to_json(self) -> dict[str, Any]:
        """As in the JSON contract's `ttft_split` of a point."""
        return {
            "client_ms": self.client_ms, "server_ms": self.server_ms, "queue_ms": self.queue_ms,
            "prefill_ms": self.prefill_ms, "front_end_ms": self.front_end_ms, "outside_ms": self.outside_ms,
            "requests": self.requests, "doubts": list(self.doubts),
        }  # fmt: skip


def ttft_split(
    means: Mapping[str, float],
    counts: Mapping[str, float] | None = None,
    *,
    client_ms: float | None = None,
    completed: int | None = None,
) -> TtftSplit | None:
    """Split the mean time to first token; None where a histogram is missing.

    Parameters
    ----------
    means, counts
        From `histogram_means` (seconds) and `histogram_counts` over the point.
    client_ms
        The client's mean TTFT.
    completed
        Requests that the client saw answered: with other clients on the server, or warm-ups, the counts differ.
    """
    if any(name not in means for name in (_TTFT, _QUEUE, _PREFILL)):
        return None
    server, queue, prefill = (means[name] * 1000 for name in (_TTFT, _QUEUE, _PREFILL))
    front_end = server - queue - prefill
    outside = None if client_ms is None else client_ms - server
    counts = counts or {}
    seen = counts.get(_TTFT)
    doubts = []
    if len({counts[name] for name in (_TTFT, _QUEUE, _PREFILL) if name in counts}) > 1:
        doubts.append(say("ttft_split.counts_differ"))
    if seen is not None and completed is not None and int(seen) != completed:
        doubts.append(say("ttft_split.others", server=int(seen), client=completed))
    # Scrapes and clocks are good to far less than this.
    if front_end < -0.5 or (outside is not None and outside < -0.5):
        doubts.append(say("ttft_split.negative"))
    return TtftSplit(
        server_ms=server, queue_ms=queue, prefill_ms=prefill, front_end_ms=front_end, client_ms=client_ms,
        outside_ms=outside, requests=None if seen is None else int(seen), doubts=tuple(doubts),
    )  # fmt: skip
