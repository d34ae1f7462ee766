"""Scrapes of vLLM's /metrics and recorded telemetry as the table `samples`.

Counters keep `_total`, histograms their `_bucket`, `_sum` and `_count` rows; `_created` rows are time stamps and
left out. Metrics that were renamed get the name that current vLLM uses. What was left out is counted in
`frame.attrs`: `created` (time stamps), `renamed_twice` (old names beside new ones), `cut` (incomplete last lines).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from prometheus_client.parser import text_string_to_metric_families

from perflab.errors import InputError
from perflab.knowledge.toml import shipped_toml
from perflab.read.files import read_lines, read_text, refusal, sniff
from perflab.read.kinds import NAMES
from perflab.schema import conform

_SUFFIXES = ("_total", "_bucket", "_sum", "_count", "_info")


class _NotPrometheusError(ValueError):
    """A line that the parser refuses."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.line = line


class _Gathered:
    """Rows and counts of a table of samples."""

    def __init__(self, prefixes: tuple[str, ...] | None = None) -> None:
        self._prefixes = prefixes
        self._series: dict[str, tuple[str, str, bool]] = {}
        self._rows: list[tuple[int, str, str, float]] = []
        self.left_out = {"created": 0, "renamed_twice": 0, "cut": 0}

    def add(self, t_ns: int, metric: str, labels: str, value: float) -> None:
        if self._prefixes is None or metric.startswith(self._prefixes):
            self._rows.append((t_ns, metric, labels, value))

    def add_scrape(self, t_ns: int, text: str) -> None:
        """Samples of one scrape; `_NotPrometheusError` when a line of it is not Prometheus text."""
        found: dict[tuple[str, str], tuple[bool, float]] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                sample = self._sample(line)
            except (ValueError, IndexError, KeyError) as error:
                raise _NotPrometheusError(f"line {number} is not Prometheus text: {line[:60]!r}", number) from error
            if sample is None:
                continue
            name, labels, is_old, value = sample
            if (name, labels) in found and (is_old or found[name, labels][0]):
                self.left_out["renamed_twice"] += 1
                if is_old:
                    continue
            found[name, labels] = is_old, value
        for (name, labels), (_, value) in found.items():
            self.add(t_ns, name, labels, value)

    def _sample(self, line: str) -> tuple[str, str, bool, float] | None:
        """Canonical name, labels, whether it was renamed, value; None where the line holds no sample to keep."""
        if not line.strip() or line.startswith("#"):
            return None
        # A scrape repeats the series of the one before; only their values need reading again.
        series, _, text = line.rpartition(" ")
        known = self._series.get(series)
        if known is None:
            samples = [s for family in text_string_to_metric_families(line + "\n") for s in family.samples]
            if not samples:
                return None
            sample = samples[0]
            name = canonical_name(sample.name)
            known = name, label_text(sample.labels), name != sample.name
            if sample.timestamp is not None:
                return (*known, float(sample.value))
            self._series[series] = known
        if known[0].endswith("_created"):
            self.left_out["created"] += 1
            return None
        return (*known, float(text))

    def frame(self) -> pd.DataFrame:
        frame = pd.DataFrame(self._rows, columns=["t_ns", "metric", "labels", "value"])
        frame = conform(frame.astype({"t_ns": "int64", "value": "float64"}), "samples")
        frame.attrs.update(self.left_out)
        return frame


def read_metrics(source: str | Path, t_ns: int) -> pd.DataFrame:
    """Read one scrape.

    Parameters
    ----------
    source
        A file (plain or compressed), or the text itself: a string that spans lines or starts with `#`.
    t_ns
        When it was taken, nanoseconds since the epoch.

    Returns
    -------
    DataFrame
        Table `samples`.

    Raises
    ------
    InputError
        When it is not Prometheus text (with the line) or holds no sample.
    """
    path = None if isinstance(source, str) and ("\n" in source or source.startswith("#")) else Path(source)
    text = str(source) if path is None else read_text(path)[0]
    gathered = _Gathered()
    if path is not None and text and not text.endswith("\n"):
        # The format ends every line; a last line without an end may lack digits.
        text = text[: text.rfind("\n") + 1]
        gathered.left_out["cut"] += 1
    try:
        gathered.add_scrape(t_ns, text)
    except _NotPrometheusError as error:
        if path is not None and sniff(path) not in (None, "metrics"):
            raise refusal(path, "metrics") from error
        raise InputError("is not Prometheus text", path=path, line=error.line) from error
    frame = gathered.frame()
    if frame.empty:
        raise InputError("holds no metrics", path=path)
    return frame


def read_samples(path: str | Path, *, prefixes: tuple[str, ...] | None = None) -> pd.DataFrame:
    """Read scrapes taken over time: JSON lines {"t_ns": int, "text": Prometheus text}.

    Parameters
    ----------
    path
        The file, plain or compressed. An incomplete last line, which a killed run leaves, is counted and left out.
    prefixes
        Keep only metrics whose canonical name begins with one of these.

    Returns
    -------
    DataFrame
        Table `samples`, in the file's order.

    Raises
    ------
    InputError
        When a line is not such a record, or its text is not Prometheus text.
    """
    gathered = _Gathered(prefixes)

    def take(record: Mapping[str, Any]) -> None:
        gathered.add_scrape(_time(record["t_ns"]), f"{_words(record['text'])}\n")

    _each_line(path, "samples", take, gathered)
    return gathered.frame()


def read_telemetry(path: str | Path) -> pd.DataFrame:
    """Read telemetry: JSON lines {"t_ns": int, "metric": str, "labels": {name: value}, "value": number}.

    A value of null is NaN: not measured. See `read_samples` for what is returned and raised.
    """
    gathered = _Gathered()

    def take(record: Mapping[str, Any]) -> None:
        labels = record.get("labels") or {}
        value = float("nan") if record["value"] is None else float(record["value"])
        gathered.add(_time(record["t_ns"]), _words(record["metric"]), label_text(labels), value)

    _each_line(path, "telemetry", take, gathered)
    return gathered.frame()


def label_text(labels: Mapping[str, Any]) -> str:
    """Labels as the column `labels` holds them: `a=1,b=2`, sorted; a `\\` stands before `\\`, `,` and `=` in values."""
    return ",".join(f"{name}={_escaped(str(value))}" for name, value in sorted(labels.items()))


def _escaped(value: str) -> str:
    return re.sub(r"([\\,=])", r"\\\1", value)


def canonical_name(name: str) -> str:
    """The name current vLLM uses for a metric, suffix kept."""
    suffix = next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")
    renamed = _renamed()
    if name in renamed:
        return renamed[name]
    return renamed.get(name.removesuffix(suffix), name.removesuffix(suffix)) + suffix


@lru_cache(maxsize=1)
def _renamed() -> dict[str, str]:
    known = shipped_toml("metrics.toml")["rename"]
    return {name: entry["canonical"] for entry in known for name in entry["names"]}


def _each_line(path: str | Path, kind: str, take: Callable[[Mapping[str, Any]], None], gathered: _Gathered) -> None:
    cut: int | None = None
    for number, line in read_lines(path):
        if cut is not None:  # only the last line may be incomplete
            raise InputError("is not valid JSON", path=path, line=cut)
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == 1 and not line.lstrip().startswith("{"):
                raise refusal(path, kind) from error
            cut = number
            continue
        try:
            take(record)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            if number == 1 and sniff(path) != kind:
                raise refusal(path, kind) from error
            why = f"it lacks {error}" if isinstance(error, KeyError) else f"{error}".partition("\n")[0]
            raise InputError(f"is not one of {NAMES[kind]}: {why}", path=path, line=number) from error
    gathered.left_out["cut"] += cut is not None


def _time(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"t_ns is {str(value)[:40]!r}, not whole nanoseconds")
    return value


def _words(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:40]!r} where text is wanted")
    return value
