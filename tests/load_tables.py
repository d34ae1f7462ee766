"""Tables of points of a load curve, made by hand."""

from typing import Any

import pandas as pd

from perflab.analysis.load.curve import LATENCIES


def points(*rows: tuple[float, float, float], kind: str = "closed", **more: Any) -> pd.DataFrame:
    """(load, requests/s, mean E2EL in ms) a row; each request has 100 tokens in and 10 out, TTFT a tenth of E2EL."""
    made = []
    for x, rate, life in rows:
        row: dict[str, Any] = {
            "run": "run", "point": f"p{x:g}", "workload": "w", "data": "random", "input_len": 100, "output_len": 10,
            "load": f"{'c' if kind == 'closed' else 'r'}{x:g}", "concurrency": x if kind == "closed" else None,
            "rate": x if kind == "open" else None, "repeat": 0, "server_run": 0, "completed": 100,
            "requests_per_s": rate, "input_tokens_per_s": 100 * rate, "output_tokens_per_s": 10 * rate,
            "total_tokens_per_s": 110 * rate, "goodput_per_s": None,
        }  # fmt: skip
        row |= {name: life / 10 if name.startswith("ttft") else life for name in LATENCIES}
        made.append(row | more)
    return pd.DataFrame(made)


SERVER = points((1, 1, 1000), (8, 7, 1143), (32, 20, 1600), (128, 32, 4000), (512, 33, 15515))
"""Of a server that does at most 33 requests a second: power 1, 6.1, 12.5, 8, 2.1 requests/s per second."""
