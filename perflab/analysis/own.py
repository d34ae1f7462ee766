"""What a user's own rules and thresholds did: said as checks, so that no figure rests on them unseen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from perflab import units
from perflab.analysis.check import Check
from perflab.analysis.kernel_names import short_kernel_name
from perflab.analysis.kernels import name_totals
from perflab.knowledge.categories import Rules
from perflab.knowledge.thresholds import Thresholds
from perflab.messages import say

_NAMES = 3


@dataclass(frozen=True)
class RulesUse:
    """What a file of kernel rules decided.

    Attributes
    ----------
    share
        Of the plain sum of recorded time; None where nothing was recorded.
    names
        What its rules matched, most time first.
    """

    file: Path
    rules: int
    share: float | None
    names: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As the JSON documents have it, under `user_rules`."""
        return {"file": str(self.file), "rules": self.rules, "share": self.share, "names": list(self.names)}


def rules_use(activities: Sequence[pd.DataFrame], rules: Rules) -> RulesUse | None:
    """What the user's rules among `rules` decided; None where there are none.

    Parameters
    ----------
    activities
        Tables `kernels`; CPU operators with their own time in `dur_ns`.
    """
    if rules.source is None:
        return None
    some = [table for table in activities if len(table)]
    if not some:
        return RulesUse(rules.source, rules.users, None, ())
    totals = name_totals(pd.concat(some, ignore_index=True))
    theirs = [rules.is_users(str(name), str(kind)) for name, kind in zip(totals["name"], totals["kind"], strict=True)]
    mine = totals[pd.Series(theirs, index=totals.index, dtype=bool)]
    return RulesUse(rules.source, rules.users, float(mine["share"].sum()), tuple(map(str, mine["name"])))


def own_checks(use: RulesUse | None, thresholds: Thresholds, *, kind: str = "GPU", run: str = "") -> list[Check]:
    """One check for rules and one for thresholds of the user's, where there are any."""
    found = []
    if use is not None:
        shown = ", ".join(f"`{short_kernel_name(name)}`" for name in use.names[:_NAMES])
        more = len(use.names) - _NAMES
        shown += f" and {more} more" if more > 0 else ""
        detail = (
            say("own.rules_used", file=use.file.name, share=units.show_share(use.share or 0), kind=kind, names=shown)
            if use.names
            else say("own.rules_unused", file=use.file.name)
        )
        found.append(Check("user_rules", "pass" if use.names else "warn", detail, (), run))
    if thresholds.source is not None:
        said = "; ".join(_change(name, before, thresholds) for name, before in thresholds.changed.items())
        found.append(
            Check("user_thresholds", "pass", say("own.thresholds", file=thresholds.source.name, changes=said), (), run)
        )
    return found


def _change(name: str, before: float | None, thresholds: Thresholds) -> str:
    table, _, level = name.partition(".")
    fields = {"name": name, "value": f"{thresholds.limit(table, level):g}"}
    if before is None:
        return say("own.threshold_new", **fields)
    return say("own.threshold", **fields, before=f"{before:g}")
