"""Which notebooks answer something about what was given: one table, read by reports, indexes and the start page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perflab import places
from perflab.report.execution import find_notebook
from perflab.report.rank_views import shape_of
from perflab.runs import Run
from perflab.tasks.find import find_runs
from perflab.tasks.machines import machine_of
from perflab.tasks.quantize.sources import study_folder
from perflab.tasks.traces import has_measured_traces, has_several_ranks

LATENCY, BREAKDOWN, RANKS = "02_latency_and_throughput", "03_gpu_time_breakdown", "04_multi_gpu"
COMPARE, QUANTIZATION = "05_compare_runs", "06_quantization_tradeoffs"


@dataclass(frozen=True)
class Given:
    """What a report is asked about.

    Attributes
    ----------
    runs
        Opened.
    studies
        Folders of quantization studies.
    sides
        Baseline and candidate, each as `perflab compare` takes it; None where nothing is to be compared.
    """

    runs: tuple[Run, ...] = ()
    studies: tuple[Path, ...] = ()
    sides: tuple[str, str] | None = None

    @property
    def measured(self) -> list[Run]:
        """Runs with a measured point of requests."""
        return [run for run in self.runs if any(point.bench and point.kind == "serve" for point in run.manifest.points)]

    @property
    def traced(self) -> list[Run]:
        """Runs with a trace of the engine as it was measured."""
        return [run for run in self.runs if has_measured_traces(run)]

    @property
    def folders(self) -> list[Path]:
        """Where all of it lies, as far as it is in folders."""
        sides = [path for side in self.sides or () for part in side.split(",") if (path := Path(part)).is_dir()]
        return [*(run.path for run in self.runs), *self.studies, *sides]


@dataclass(frozen=True)
class Choice:
    """A notebook, and the parameters it gets of what is given; None: it would have nothing to say."""

    notebook: str
    parameters: Callable[[Given], dict[str, Any] | None]


def _compared(given: Given) -> dict[str, Any] | None:
    return {"baseline": given.sides[0], "candidate": given.sides[1]} if given.sides else None


def _measured(given: Given) -> dict[str, Any] | None:
    return _runs(given.measured)


def _traced(given: Given) -> dict[str, Any] | None:
    return _runs(given.traced)


def _ranked(given: Given) -> dict[str, Any] | None:
    """One rank says nothing about several, but is what they are set beside."""
    return _runs(given.traced) if any(has_several_ranks(run) for run in given.traced) else None


def _quantized(given: Given) -> dict[str, Any] | None:
    """Studies; or runs of one model and machine in several formats."""
    if given.studies:
        return {"studies": [str(path.resolve()) for path in given.studies]}
    formats: dict[tuple[Any, ...], list[Run]] = {}
    for run in given.measured:
        if shape := shape_of(run):
            key = (shape, machine_of(run.manifest.hardware, run.manifest.engine.flavour))
            formats.setdefault(key, []).append(run)
    several = [
        run
        for of in formats.values()
        if len({str(run.manifest.engine.settings.get("quantization")) for run in of}) > 1
        for run in of
    ]
    return {"studies": [str(run.path.resolve()) for run in several]} if several else None


CHOICES = (
    Choice(COMPARE, _compared),
    Choice(QUANTIZATION, _quantized),
    Choice(LATENCY, _measured),
    Choice(BREAKDOWN, _traced),
    Choice(RANKS, _ranked),
)
"""In the order in which a report has them: the most particular question first."""


def given(names: str | Path | Sequence[str | Path] = (), sides: tuple[str | Path, str | Path] | None = None) -> Given:
    """Open what was named: run directories, recorded runs and studies; and the two sides to compare.

    Raises
    ------
    InputError
        When a name is neither a run nor a study, or nothing was named.
    """
    parts = [names] if isinstance(names, Path) else names.split(",") if isinstance(names, str) else list(names)
    studies = [(part, study_folder(part)) for part in parts]
    rest = [part for part, study in studies if study is None]
    found = tuple(study for _, study in studies if study is not None)
    runs = tuple(find_runs(rest)) if rest or not (found or sides) else ()
    two = (_located(sides[0]), _located(sides[1])) if sides is not None else None
    return Given(runs, found, two)


def chosen(of: Given) -> list[tuple[Path, dict[str, Any]]]:
    """The notebooks that have something to say, each with its parameters."""
    found = [(choice.notebook, choice.parameters(of)) for choice in CHOICES]
    return [(find_notebook(name), parameters) for name, parameters in found if parameters is not None]


def _runs(runs: Sequence[Run]) -> dict[str, Any] | None:
    return {"runs": [run.path.resolve() for run in runs]} if runs else None


def _located(side: str | Path) -> str:
    """A side with its paths made absolute: a notebook runs anywhere. Names of recorded runs become their folders."""
    parts = [part.strip() for part in str(side).split(",") if part.strip()]
    recorded = places.recorded()
    found = [Path(part) if Path(part).exists() else recorded / part for part in parts]
    return ",".join(str(at.resolve()) if at.exists() else part for at, part in zip(found, parts, strict=True))
