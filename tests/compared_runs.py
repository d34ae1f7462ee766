"""Sides of a comparison written by hand: a run directory a server, whose median TPOT is what is asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from small_history import write_run

from perflab.runs import MANIFEST

START = datetime(2026, 11, 30, tzinfo=UTC)


def write_side(
    folder: Path,
    tpots_ms: Sequence[float],
    *,
    minutes: Sequence[float] | None = None,
    bench: dict[str, Any] | None = None,
    points: dict[str, Any] | None = None,
    repeats: int = 1,
    load: int = 8,
    **settings: Any,
) -> Path:
    """A folder of runs; throughput goes as one over TPOT, TTFT is ten times TPOT.

    Parameters
    ----------
    minutes
        When each run was measured; not told where None.
    bench, points
        Set in every result and every point besides.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, tpot in enumerate(tpots_ms):
        run = write_run(folder / f"run{number}", number, 1e4 / tpot, repeats=repeats, load=load, **settings)
        manifest = json.loads((run / MANIFEST).read_text())
        for place, point in enumerate(manifest["points"]):
            file = run / point["bench"]
            # The label makes every file another one, as those of real runs are.
            seconds = 40 * tpot / 1e4
            rates = {"request_throughput": 8 / seconds, "total_token_throughput": 168 / seconds}
            result = json.loads(file.read_text()) | {"duration": seconds, "label": f"{folder.name}-{number}-{place}"}
            result |= rates | (bench or {})
            file.write_text(json.dumps(result))
            if minutes is not None:
                started = START + timedelta(minutes=minutes[number], seconds=place)
                point["started"] = started.isoformat(timespec="milliseconds")
            point.update(points or {})
        (run / MANIFEST).write_text(json.dumps(manifest))
    return folder
