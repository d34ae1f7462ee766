"""A user's own kernel rules and thresholds: given by path, or named by environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from perflab.knowledge.categories import Rules, load_rules
from perflab.knowledge.thresholds import Thresholds, load_thresholds, own_thresholds

RULES, THRESHOLDS = "PERFLAB_RULES", "PERFLAB_THRESHOLDS"


@dataclass(frozen=True)
class Own:
    """The rules that name kernels and the figures at which findings speak: perflab's own after the user's."""

    rules: Rules = field(default_factory=load_rules)
    thresholds: Thresholds = field(default_factory=own_thresholds)


def own(rules: str | Path | None = None, thresholds: str | Path | None = None) -> Own:
    """Read the user's files.

    Parameters
    ----------
    rules
        File of `[[rule]]` tables; else the one `PERFLAB_RULES` names, if any.
    thresholds
        File of thresholds; else the one `PERFLAB_THRESHOLDS` names, if any.

    Raises
    ------
    InputError
        When one of them cannot be used; one line with file, line and what is wrong.
    """
    return Own(load_rules(_file(rules, RULES)), user_thresholds(thresholds))


def user_thresholds(given: str | Path | None = None) -> Thresholds:
    """The thresholds alone; as `own`."""
    return load_thresholds(_file(given, THRESHOLDS))


def _file(given: str | Path | None, variable: str) -> Path | None:
    named = given if given is not None else os.environ.get(variable)
    return Path(named) if named else None
