"""What joins each worker of vLLM (`worker_extension_cls`): it sees the logits that the model gives, and compares them.

vLLM's own answer holds one Python object for each token of the vocabulary at each position: of 20,000 positions and
49,152 tokens a thousand million. Here whole rows are compared where they are computed; a few numbers a row come back.
"""

from typing import Any

import torch
from perflab_logits import Reader, Writer, divergence, nll_and_top


class ScoringWorker:
    """Methods that `LLM.collective_rpc` can call. Every worker has them; the first one alone has the logits."""

    model_runner: Any
    rank: int
    _perflab_rows: "list[Any]"
    _perflab_writer: "Writer | None"
    _perflab_reader: "Reader | None"
    _perflab_start: int

    def perflab_watch(self, role: str, folder: str, top_k: "int | None") -> str:
        """Begin to see logits; `role` is `write` (a reference into `folder`) or `compare` (with the one in it)."""
        model = self.model_runner.model
        self._perflab_rows, self._perflab_start = [], 0
        self._perflab_writer = self._perflab_reader = None
        first = getattr(self, "rank", 0) == 0
        if first and role == "write":
            self._perflab_writer = Writer(folder, top_k)
        elif first:
            self._perflab_reader = Reader(folder)
        if not hasattr(self, "_perflab_inner"):
            inner = self._perflab_inner = model.compute_logits

            def seen(*args: Any, **kwargs: Any) -> Any:
                logits = inner(*args, **kwargs)
                if logits is not None and first:
                    self._perflab_rows.append(logits)
                return logits

            model.compute_logits = seen
        return type(model).__name__

    def perflab_forget(self) -> None:
        """Drop what was seen so far."""
        self._perflab_rows.clear()

    def perflab_prompt(self, targets: "list[int]") -> "dict[str, Any] | None":
        """Score the prompt that just ran; `targets` are its tokens from the second on."""
        if getattr(self, "rank", 0) != 0:
            return None
        # One row alone is what the next token is sampled from; the prompt's rows come in the order of its tokens.
        parts = [rows for rows in self._perflab_rows if rows.shape[0] > 1]
        sizes = [int(rows.shape[0]) for rows in self._perflab_rows]
        self._perflab_rows.clear()
        if sum(len(part) for part in parts) < len(targets):
            raise RuntimeError(f"{len(targets)} rows of logits were expected, the model gave {sizes}")
        return self._perflab_scored(torch.cat(parts)[: len(targets)], targets)

    def perflab_decoded(self, targets: "list[int]") -> "dict[str, Any] | None":
        """Score the last rows seen, one a step."""
        if getattr(self, "rank", 0) != 0:
            return None
        rows = torch.cat([part[-1:] for part in self._perflab_rows])
        self._perflab_rows.clear()
        if len(rows) < len(targets):
            raise RuntimeError(f"{len(targets)} steps were expected, the model made {len(rows)}")
        return self._perflab_scored(rows[-len(targets) :], targets)

    def perflab_close(self) -> None:
        """End writing a reference."""
        if self._perflab_writer is not None:
            self._perflab_writer.close()
        self._perflab_writer = self._perflab_reader = None

    def _perflab_scored(self, logits: Any, targets: "list[int]") -> "dict[str, Any]":
        wanted = torch.tensor(targets, dtype=torch.int64, device=logits.device)
        nll, top = nll_and_top(logits, wanted)
        found = {"nll": nll.tolist(), "hit": (top == wanted).tolist(), "dtype": str(logits.dtype)}
        if self._perflab_writer is not None:
            self._perflab_writer.add(logits)
        elif self._perflab_reader is not None:
            kl, same = divergence(logits, self._perflab_reader, self._perflab_start)
            found |= {"kl": kl.tolist(), "same": same.tolist()}
            self._perflab_start += len(targets)
        return found
