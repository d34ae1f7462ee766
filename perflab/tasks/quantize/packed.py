"""Tables of a study's scores on disk: CSV, packed by xz, written whole or not at all."""

from __future__ import annotations

import io
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from perflab.errors import InputError
from perflab.messages import say


def read_packed(path: Path, columns: Sequence[str], missing: str, texts: Sequence[str] = ()) -> pd.DataFrame:
    """These columns of a table.

    Parameters
    ----------
    missing
        What to say where there is no such file.
    texts
        The columns that hold text, taken as it stands: `NA` is a name like any other.

    Raises
    ------
    InputError
        When there is no such file, it cannot be read, or it lacks a column.
    """
    how: Mapping[str, object] = {"dtype": dict.fromkeys(texts, str), "keep_default_na": False} if texts else {}
    try:
        frame: pd.DataFrame = pd.read_csv(io.BytesIO(lzma.decompress(path.read_bytes())), **how)
    except FileNotFoundError as error:
        raise InputError(missing, path=path) from error
    except (OSError, ValueError, lzma.LZMAError) as error:
        raise InputError(f"cannot be read: {' '.join(str(error).split())}", path=path) from error
    if lacking := [name for name in columns if name not in frame.columns]:
        raise InputError(say("quantize_accuracy.no_column", name=lacking[0]), path=path)
    return frame.loc[:, list(columns)]


def write_packed(path: Path, frame: pd.DataFrame) -> None:
    """Write a table, and its folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(lzma.compress(frame.to_csv(index=False).encode(), preset=9 | lzma.PRESET_EXTREME))
    part.replace(path)
