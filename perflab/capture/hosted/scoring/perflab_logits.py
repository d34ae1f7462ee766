"""Next-token distributions: kept on disk as the engine gives them, and compared with those of another engine.

A *reference* is a folder: `logits.bin`, one row a scored token in the engine's own type, and `meta.json`, written last,
which tells the type, the width and the rows. bfloat16 is kept as its 16 bits, so nothing is lost. With `top_k` only the
k most likely tokens of a row are kept (float32 logarithms of probabilities, and their ids).
"""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

_ROWS = 128
_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


class Writer:
    """Writes a reference row by row."""

    def __init__(self, folder: "str | Path", top_k: "int | None" = None) -> None:
        self.folder, self.top_k = Path(folder), top_k
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "meta.json").unlink(missing_ok=True)
        self.file = (self.folder / "logits.bin").open("wb")
        self.ids = (self.folder / "ids.bin").open("wb") if top_k else None
        self.rows, self.width, self.dtype = 0, 0, ""

    def add(self, logits: Any) -> None:
        """Append rows."""
        self.width, self.dtype = int(logits.shape[1]), str(logits.dtype).removeprefix("torch.")
        self.rows += int(logits.shape[0])
        for part in logits.split(_ROWS):
            if self.top_k and self.ids is not None:
                values, ids = torch.log_softmax(part.float(), -1).topk(min(self.top_k, self.width), -1)
                self.file.write(values.cpu().contiguous().numpy().tobytes())
                self.ids.write(ids.to(torch.int32).cpu().contiguous().numpy().tobytes())
                continue
            part = part.contiguous().cpu()
            raw = part if part.dtype == torch.float32 else part.view(torch.int16)
            self.file.write(raw.numpy().tobytes())

    def close(self) -> None:
        """Say that it is whole."""
        self.file.close()
        if self.ids is not None:
            self.ids.close()
        k = min(self.top_k, self.width) if self.top_k else None
        meta = {"rows": self.rows, "width": self.width, "dtype": self.dtype, "top_k": k}
        (self.folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")


class Reader:
    """Reads a reference."""

    def __init__(self, folder: "str | Path") -> None:
        folder = Path(folder)
        self.meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        self.width, self.top_k = self.meta["width"], self.meta["top_k"]
        columns = self.top_k or self.width
        narrow = not self.top_k and self.meta["dtype"] != "float32"
        kind = np.int16 if narrow else np.float32
        shape = (self.meta["rows"], columns)
        self.values: Any = np.memmap(folder / "logits.bin", dtype=kind, mode="r", shape=shape)
        self.ids: Any = np.memmap(folder / "ids.bin", dtype=np.int32, mode="r", shape=shape) if self.top_k else None
        self.dtype = _TYPES[self.meta["dtype"]]

    def rows(self, start: int, stop: int, device: Any) -> "tuple[Any, Any]":
        """Logits of some rows; with `top_k` the logarithms of probabilities and the ids."""
        values = torch.from_numpy(np.array(self.values[start:stop])).to(device)
        if self.top_k:
            return values, torch.from_numpy(np.array(self.ids[start:stop])).to(device).long()
        return (values if self.dtype == torch.float32 else values.view(self.dtype)), None


def nll_and_top(logits: Any, targets: Any) -> "tuple[Any, Any]":
    """Of each row: minus the logarithm of the target's probability, and the most likely token."""
    nll, top = [], []
    for part, wanted in zip(logits.split(_ROWS), targets.split(_ROWS), strict=True):
        log_p = torch.log_softmax(part.float(), -1)
        nll.append(-log_p.gather(1, wanted[:, None])[:, 0])
        top.append(part.argmax(-1))
    return torch.cat(nll), torch.cat(top)


def divergence(logits: Any, reference: Reader, start: int) -> "tuple[Any, Any]":
    """Of each row: KL(reference || these), in nats, and whether the most likely token is the reference's.

    With a reference of the k most likely tokens all others count as one, which makes it a lower bound.
    """
    kl, same = [], []
    for index, part in enumerate(logits.split(_ROWS)):
        begin = start + index * _ROWS
        theirs, ids = reference.rows(begin, begin + len(part), part.device)
        log_q = torch.log_softmax(part.float(), -1)
        if ids is None:
            log_p = torch.log_softmax(theirs.float(), -1)
            found = (log_p.exp() * (log_p - log_q)).sum(-1)
            same.append(part.argmax(-1) == theirs.argmax(-1))
        else:
            log_q_there = log_q.gather(1, ids)
            found = (theirs.exp() * (theirs - log_q_there)).sum(-1)
            # What is left of both; rounding can take it a little below 0.
            p_rest = (1 - theirs.double().exp().sum(-1)).clamp_min(0)
            q_rest = (1 - log_q_there.double().exp().sum(-1)).clamp_min(1e-12)
            rest = torch.where(p_rest > 1e-7, p_rest * (p_rest.clamp_min(1e-12) / q_rest).log(), 0.0)
            found = found + rest.float()
            same.append(part.argmax(-1) == ids[:, 0])
        kl.append(found)
    return torch.cat(kl), torch.cat(same)


def windows_of(
    documents: Sequence[str], encode: Callable[[str], "list[int]"], lead: "list[int]", *, window: int, tokens: int,
    least: int = 16,
) -> "list[tuple[int, int, list[int]]]":  # fmt: skip
    """Cut documents into windows: the first of each, then the second of each, until `tokens` can be scored.

    Parameters
    ----------
    documents
        Texts.
    encode
        Text -> token ids, without special ones.
    lead
        Token ids before each window (what the tokenizer puts at the beginning itself).

    Returns
    -------
    A list of `(document, position of the first token, ids with the lead)`. Of a window its first token is context only.
    """
    room = window - len(lead)
    encoded = [encode(text) for text in documents]
    found: list[tuple[int, int, list[int]]] = []
    scored = 0
    for turn in range(max((math.ceil(len(ids) / room) for ids in encoded), default=0)):
        for index, ids in enumerate(encoded):
            part = ids[turn * room : (turn + 1) * room]
            if len(part) + len(lead) < least:
                continue
            if scored >= tokens:
                return found
            found.append((index, turn * room, [*lead, *part]))
            scored += len(lead) + len(part) - 1
    return found
