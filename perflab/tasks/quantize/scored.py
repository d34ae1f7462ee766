"""Scores of a study's variants on disk: written by `accuracy.py`, read by whoever shows or redoes the statistics.

`accuracy/baseline/tokens.csv.xz` has document, position, token and nll of each scored token, in order;
`accuracy/baseline/control.csv.xz` compares the first of them with the baseline itself, run once more.
`accuracy/NAME/tokens.csv.xz` has of the same tokens in the same order the nll of the variant less the baseline's, KL,
and whether the most likely token is the baseline's. Rounded to 0.001 nats and to two digits, which moves no figure
by more than a tenth of a thousandth; figures are worked out from what is on disk.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from perflab.errors import InputError
from perflab.messages import say
from perflab.tasks.quantize.packed import read_packed, write_packed

TOKENS = "tokens.csv.xz"
CONTROL = "control.csv.xz"
BASELINE = "baseline"
_SHARED = ("document", "position", "token", "nll")
_OWN = ("difference", "kl", "top1_agrees")


def read_tokens(accuracy: str | Path, variant: str, baseline: str = BASELINE) -> pd.DataFrame:
    """Scored tokens of a variant.

    Parameters
    ----------
    accuracy
        The folder `accuracy` of a study.

    Returns
    -------
    One row a token: document, position, token, nll, nll_baseline (nats), top1_agrees, kl (nats). For the baseline
    itself nll and nll_baseline are the same.

    Raises
    ------
    InputError
        When a file is missing, is none of ours, or the two do not belong together.
    """
    folder = Path(accuracy)
    shared = _read(folder / baseline / TOKENS, _SHARED)
    frame = pd.DataFrame({name: shared[name].astype("int64") for name in _SHARED[:3]})
    frame["nll_baseline"] = shared["nll"].astype(np.float64)
    if variant == baseline:
        return frame.assign(nll=frame["nll_baseline"], top1_agrees=True, kl=0.0)[_columns()]
    return _joined(frame, folder / variant / TOKENS)


def read_control(accuracy: str | Path, baseline: str = BASELINE) -> pd.DataFrame:
    """The baseline compared with itself, on the first of its windows: as `read_tokens`.

    Raises
    ------
    InputError
        As `read_tokens` does.
    """
    frame = read_tokens(accuracy, baseline, baseline)
    file = Path(accuracy) / baseline / CONTROL
    return _joined(frame.iloc[: len(_read(file, _OWN))].copy(), file)


def _joined(frame: pd.DataFrame, file: Path) -> pd.DataFrame:
    own = _read(file, _OWN)
    if len(own) != len(frame):
        raise InputError(say("quantize_accuracy.other_tokens", own=len(own), shared=len(frame)), path=file)
    frame["nll"] = frame["nll_baseline"] + own["difference"].astype(np.float64).to_numpy()
    frame["top1_agrees"] = own["top1_agrees"].astype(np.int64).to_numpy() == 1
    frame["kl"] = own["kl"].astype(np.float64).to_numpy()
    return frame[_columns()]


def write_baseline(folder: Path, scores: dict[str, np.ndarray]) -> None:
    """Write the baseline's tokens out of the arrays of a job."""
    frame = pd.DataFrame({name: scores[name] for name in _SHARED[:3]})
    frame["nll"] = [f"{value:.3f}" for value in scores["nll"]]
    write_packed(folder / TOKENS, frame)


def write_variant(
    folder: Path, scores: dict[str, np.ndarray], baseline: dict[str, np.ndarray], file: str = TOKENS
) -> None:
    """Write a variant's tokens out of the arrays of a job; the control may have fewer than the baseline."""
    n = len(scores["token"])
    if not np.array_equal(scores["token"], baseline["token"][:n]) or (file == TOKENS and n < len(baseline["token"])):
        raise InputError(say("quantize_accuracy.other_text"), path=folder)
    difference = scores["nll"] - baseline["nll"][:n]
    frame = pd.DataFrame(
        {
            "difference": [_short(f"{value:.3f}") for value in difference],
            "kl": [_short(f"{value:.2g}") if value >= 1e-7 else "0" for value in scores["kl"]],
            "top1_agrees": scores["same"].astype(int),
        }
    )
    write_packed(folder / file, frame)


def _short(number: str) -> str:
    return "0" if not float(number) else number.replace("0.", ".", 1) if number.lstrip("-").startswith("0.") else number


def _read(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    frame = read_packed(path, columns, say("quantize_accuracy.no_tokens"))
    numbers = frame.apply(pd.to_numeric, errors="coerce")
    if not np.isfinite(numbers.to_numpy(dtype=np.float64)).all():
        raise InputError(say("quantize_accuracy.not_finite"), path=path)
    return numbers


def _columns() -> list[str]:
    return ["document", "position", "token", "nll", "nll_baseline", "top1_agrees", "kl"]
