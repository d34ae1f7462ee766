"""Answers as they travel: plain arrays of fixed kinds, which a page reads without parsing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from perflab.analysis.kernel_names import short_kernel_name
from perflab.explorer.kernels import Matches, NameTable
from perflab.explorer.pictures import Bars, Columns
from perflab.explorer.rank_times import Lane
from perflab.schema import PHASES

_UNKNOWN = -1
STEP_COUNTS = ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens", "kv_tokens")


def steps(table: pd.DataFrame) -> list[bytes]:
    """Start, duration (float64 ns), number (int32), phase (uint8) and, -1 where not known, five counts (int32)."""
    phase = pd.Index(PHASES).get_indexer(pd.Index(table["phase"].astype("object")))
    return [
        table["start_ns"].to_numpy(np.float64).tobytes(), table["dur_ns"].to_numpy(np.float64).tobytes(),
        table["step"].to_numpy(np.int32).tobytes(), phase.astype(np.uint8).tobytes(),
        *(table[name].to_numpy(np.int64, na_value=_UNKNOWN).astype(np.int32).tobytes() for name in STEP_COUNTS),
    ]  # fmt: skip


def bars(of: Bars, found: Matches | None, *, is_host: bool) -> list[bytes]:
    """Start, end (float64 ns), code (uint8), name, row (uint32), and whether a search found it (uint8)."""
    hit = np.zeros(len(of.name), dtype=np.uint8)
    if found is not None and not is_host:
        hit = found.names[of.name].astype(np.uint8)
    return [
        of.start.astype(np.float64).tobytes(), of.end.astype(np.float64).tobytes(), of.code.astype(np.uint8).tobytes(),
        of.name.astype(np.uint32).tobytes(), of.row.astype(np.uint32).tobytes(), hit.tobytes(),
    ]  # fmt: skip


def columns(of: Columns) -> list[bytes]:
    """Column (uint16), code (uint8), count (uint32), time (ns: uint32 where it fits, else float64)."""
    kind = np.uint32 if not len(of.ns) or int(of.ns.max()) < 1 << 32 else np.float64
    return [
        of.column.astype(np.uint16).tobytes(), of.code.astype(np.uint8).tobytes(),
        of.count.astype(np.uint32).tobytes(), of.ns.astype(kind).tobytes(),
    ]  # fmt: skip


def activities(lanes: Sequence[Lane], bars: Sequence[Bars], columns: Sequence[Columns]) -> int:
    """How many stretches of device activity a picture shows; host calls are none."""
    count = sum(len(one.start) for one in bars if not one.only_named and lanes[one.lane].kind != "host")
    return count + sum(int(one.count.sum()) for one in columns if lanes[one.lane].kind != "host")


def name_table(of: NameTable) -> dict[str, Any]:
    """The table of names as the page shows it."""
    return {
        "rows": [
            {
                "name": row.name, "short": short_kernel_name(row.name, 90), "category": row.category,
                "count": row.count, "ns": row.ns, "share": row.share,
            }
            for row in of.rows
        ],
        "names": of.names, "count": of.count, "found_ns": of.found_ns, "ns": of.ns,
    }  # fmt: skip
