"""Small tables by hand: a line a row, times in any unit one likes."""

from typing import Any

import pandas as pd

from perflab.schema import TABLES, conform


def kernels(*rows: dict[str, Any]) -> pd.DataFrame:
    """Table `kernels`; a row needs start, dur and category, the rest has defaults."""
    filled = [
        {
            "rank": 0,
            "device": 0,
            "stream": 7,
            "correlation_id": -1,
            "graph_id": -1,
            "name": row.get("category", "k"),
            "kind": "kernel",
            "bytes": None,
            "category": "other",
            **{k: v for k, v in row.items() if k not in ("start", "dur")},
            "start_ns": row["start"],
            "dur_ns": row["dur"],
        }
        for row in rows
    ]
    frame = pd.DataFrame(filled, columns=_names("kernels")) if filled else pd.DataFrame(columns=_names("kernels"))
    return conform(frame, "kernels")


def launches(*rows: dict[str, Any]) -> pd.DataFrame:
    """Table `launches`; a row needs id and start."""
    filled = [
        {
            "rank": row.get("rank", 0),
            "process": 1,
            "thread": 1,
            "correlation_id": row["id"],
            "api_name": row.get("api", "cudaLaunchKernel"),
            "start_ns": row["start"],
            "dur_ns": row.get("dur", 1),
        }
        for row in rows
    ]
    return conform(pd.DataFrame(filled, columns=_names("launches")), "launches")


def ranges(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """Table `ranges`; a row is (domain, thread, name, start, dur) and maybe a rank."""
    filled = [
        {
            "rank": row[5] if len(row) > 5 else 0,
            "domain": row[0],
            "thread": row[1],
            "name": row[2],
            "start_ns": row[3],
            "dur_ns": row[4],
        }
        for row in rows
    ]
    return conform(pd.DataFrame(filled, columns=_names("ranges")), "ranges")


def steps(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """Table `steps`; a row is (phase, start, dur) and maybe a rank; numbered as they come."""
    counts: dict[int, int] = {}
    filled = []
    for row in rows:
        rank = row[3] if len(row) > 3 else 0
        filled.append(
            {
                "rank": rank,
                "step": counts.setdefault(rank, 0),
                "phase": row[0],
                "start_ns": row[1],
                "dur_ns": row[2],
                "forward_ns": row[2],
                **dict.fromkeys(
                    ("prefill_requests", "prefill_tokens", "decode_requests", "decode_tokens", "kv_tokens")
                ),
            }
        )
        counts[rank] += 1
    return conform(pd.DataFrame(filled, columns=_names("steps")), "steps")


def _names(table: str) -> list[str]:
    return TABLES[table].names
