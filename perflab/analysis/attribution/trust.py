"""What the trust report says of attribution: how much of the replayed time is known, and from where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from perflab import units
from perflab.analysis.attribution.ladder import Attribution
from perflab.analysis.check import Check
from perflab.messages import say


def with_attribution(checks: Sequence[Check], found: Sequence[Attribution]) -> list[Check]:
    """The checks, with what is known of kernels inside graph replays added to the one on replays."""
    told = _replays(found)
    if told is None:
        return list(checks)
    return [
        replace(check, detail=f"{check.detail} {told}")
        if check.check == "graph_replays" and check.status != "not_applicable"
        else check
        for check in checks
    ]


def _replays(found: Sequence[Attribution]) -> str | None:
    if not found:
        return None
    rows = pd.concat([one.rows for one in found], ignore_index=True)
    inside = rows[rows["replayed"].to_numpy(bool)]
    total = int(inside["exclusive_ns"].sum())
    if not total:
        return None
    by_rung = inside.groupby("rung")["exclusive_ns"].sum()
    known = int(by_rung.get("capture", 0)) + int(by_rung.get("teacher", 0))
    parts = units.show_share(int(inside.loc[inside["module"].notna(), "exclusive_ns"].sum()) / total)
    if not known:
        return say("attribution.replays_inferred", parts=parts)
    from_capture = int(by_rung.get("capture", 0)) >= int(by_rung.get("teacher", 0))
    how = say("attribution.from_capture") if from_capture else say("attribution.from_teacher")
    return say("attribution.replays_known", operators=units.show_share(known / total), how=how, parts=parts)
