"""Which operators, layers and parts of the model the kernels of a pass belong to: reads what the ladder needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from perflab.analysis.attribution import Attribution, Capture, HostSide, attribute, captures
from perflab.analysis.attribution.host import from_tables
from perflab.analysis.kernels import categorize
from perflab.analysis.model.shape import text_config
from perflab.analysis.steps import steps_from_ranges
from perflab.knowledge.categories import Rules
from perflab.knowledge.thresholds import Thresholds
from perflab.read.files import sniff
from perflab.read.host_side import read_host_side
from perflab.read.kineto import rank_in_name
from perflab.read.trace import Trace
from perflab.read.trace_files import read_traces
from perflab.tasks.traces import PassSource, run_passes

SMALL_BYTES = 8 << 20
"""Files of a pass up to this, compressed as they are, are attributed without being asked. Attribution reads a trace
once more, which doubles the time: 1 s more for 216,000 events (2.7 MB compressed) on one core."""

CAPTURES = "capture_traces"
"""Folder beside a trace in which profilers leave what they recorded while graphs were captured."""


def is_small(source: PassSource) -> bool:
    """Whether the traces of a pass are attributed without being asked."""
    return sum(path.stat().st_size for path in source.files) <= SMALL_BYTES


class Attributor:
    """Attributes the ranks of one pass; what they share is read once.

    Parameters
    ----------
    source
        The pass.
    rules
        The rules for categories.
    thresholds
        How well captures and teacher must match.
    config
        The model's config.json, where it is known: its number of layers holds the inference to account.
    """

    def __init__(
        self, source: PassSource, rules: Rules, thresholds: Thresholds, config: Mapping[str, Any] | None = None
    ) -> None:
        self._layers = _layers(config, source.engine.settings)
        self._rules, self._thresholds = rules, thresholds
        self._is_teacher = source.profile is not None and source.profile.role == "teacher"
        self._teachers = [] if self._is_teacher or source.home is None else run_passes(source.home, "teacher")

    def attribute(self, trace: Trace, kernels: pd.DataFrame, steps: pd.DataFrame) -> Attribution:
        """Attribute one rank.

        Parameters
        ----------
        trace
            Its trace.
        kernels, steps
            Its kernels with categories, and its steps.
        """
        return attribute(
            kernels,
            steps,
            host=_host(trace),
            captured=_captures(trace),
            teacher=self._teacher(trace.rank),
            layers=self._layers,
            thresholds=self._thresholds,
        )

    def _teacher(self, rank: int) -> Attribution | None:
        """What the teacher's trace of a rank tells; None where there is none."""
        files = [path for source in self._teachers for path in source.files]
        for path in files:
            if rank_in_name(path) not in (None, rank):
                continue
            for trace in read_traces(path):
                if trace.rank == rank and trace.has_gpu:
                    kernels = categorize(trace.kernels, self._rules)
                    steps = steps_from_ranges(trace.ranges, kernels, trace.launches)
                    return attribute(kernels, steps, host=_host(trace), layers=self._layers)
        return None


def _layers(config: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> int | None:
    """Layers of a rank; None where the config is not known, or layers are spread over ranks."""
    count = text_config(config).get("num_hidden_layers") if config else None
    stages = settings.get("pipeline_parallel_size", 1)
    return count if isinstance(count, int) and str(stages) == "1" else None


def _host(trace: Trace) -> HostSide:
    if sniff(trace.path) == "kineto":
        return read_host_side(trace.path)
    return from_tables(trace.launches, trace.ranges)


def _captures(trace: Trace) -> list[Capture]:
    """The captures recorded beside a trace, of its rank where the names tell ranks."""
    folder: Path = trace.path.parent / CAPTURES
    if not folder.is_dir():
        return []
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and sniff(path) == "kineto"]
    return [
        capture
        for path in files
        if rank_in_name(path) in (None, trace.rank)
        for capture in captures(read_host_side(path))
    ]
