"""Each kernel's share of each step: what a category's exclusive time consists of."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from perflab.analysis.breakdown import innermost, tiers
from perflab.analysis.intervals import Ints, as_ints, exclusive, split
from perflab.analysis.steps import step_marks, step_of
from perflab.schema import CATEGORIES

# Fused kernels are numbered as they come, and their names list operators they feed but do not execute; 16-bit floats
# have a name in every library. None of that makes another kernel.
_NUMBER = re.compile(r"^(triton_\w*?)_\d+$")
_NEIGHBOURS = re.compile(
    r"(?<=_)(?:machete_mm|cutlass_scaled_mm|cutlass_scaled_mm_azp|gptq_marlin_gemm|marlin_gemm|awq_gemm|gptq_gemm)_"
)
_SIXTEEN = (
    (re.compile(r"__(?:nv|hip)_bfloat16|c10::BFloat16|cutlass::bfloat16_t|__half|c10::Half|cutlass::half_t"), "16"),
    (re.compile(r"(reshape_and_cache\w*<)unsigned short, unsigned short"), r"\g<1>16, 16"),
    (re.compile(r"^(nvjet_sm\d+a?_)(?:tst|hsh)_"), r"\g<1>16_"),
    (re.compile(r"^(nccl\w+_)(?:bf16|f16)_"), r"\g<1>16_"),
)  # fmt: skip


def kernel_key(name: str) -> str:
    """A name by which a kernel is found again in another trace.

    Without the number Inductor gives it and the operators it merely feeds, and with one word for FP16 and BF16; tile
    shapes and everything else that makes it another kernel stay.
    """
    text = " ".join(name.split())
    if text.startswith("triton_"):
        text = _NEIGHBOURS.sub("", text)
        found = _NUMBER.match(text)
        # Without operator words the number is all there is of a name.
        return found[1] if found and not found[1].endswith("_fused") else text
    text = _without_arguments(text)
    for pattern, word in _SIXTEEN:
        text = pattern.sub(word, text)
    return text


def _without_arguments(text: str) -> str:
    """A C++ function without its parameters, which only repeat the types of its template; a space is no function."""
    if not text.endswith(")"):
        return text
    depth = 0
    for position in range(len(text) - 1, -1, -1):
        depth += (text[position] == ")") - (text[position] == "(")
        if depth == 0:
            return text[:position] if position and text[position - 1] != " " else text
    return text


def kernel_steps(kernels: pd.DataFrame, steps: pd.DataFrame, thread: int | None = None) -> pd.DataFrame:
    """Exclusive time and calls of each name in each step of one rank.

    Parameters
    ----------
    kernels
        Table `kernels` of the rank, with categories.
    steps
        Table `steps` of the rank, in order.
    thread
        The worker's thread of a CPU engine: its operators are counted, by own time. Device work unless given.

    Returns
    -------
    DataFrame
        `step`, `category`, `name`, `exclusive_ns`, `calls` (that start in the step). The exclusive times of a
        step and category sum to what `perflab.analysis.breakdown` gives the category, to the nanosecond.
    """
    if thread is None:
        work = kernels[kernels["kind"] != "cpu_op"]
    else:
        work = kernels[(kernels["kind"] == "cpu_op") & (kernels["stream"] == thread)]
    if work.empty or steps.empty:
        return _frame([], [], [], [], [])
    start = work["start_ns"].to_numpy(np.int64)
    end = start + work["dur_ns"].to_numpy(np.int64)
    edges = np.append(steps["start_ns"].to_numpy(np.int64), int(steps["start_ns"].iloc[-1] + steps["dur_ns"].iloc[-1]))
    code = as_ints(pd.Index(CATEGORIES).get_indexer(pd.Index(work["category"].astype("object"))))
    at, row, length = _pieces(work, start, end, edges, code, on_cpu=thread is not None)
    names = pd.factorize(work["name"].astype("object"))
    position, begun = step_of(at, steps), step_of(start, steps)
    own = pd.DataFrame({"at": position, "code": code[row], "name": names[0][row], "ns": length, "calls": 0})
    calls = pd.DataFrame({"at": begun, "code": code, "name": names[0], "ns": 0, "calls": 1})
    both = pd.concat([own, calls], ignore_index=True)
    sums = both[both["at"] >= 0].groupby(["at", "code", "name"], sort=True)[["ns", "calls"]].sum().reset_index()
    number = steps["step"].to_numpy(np.int64)[sums["at"].to_numpy()]
    return _frame(
        number,
        [CATEGORIES[c] for c in sums["code"]],
        [str(names[1][n]) for n in sums["name"]],
        sums["ns"].to_numpy(),
        sums["calls"].to_numpy(),
    )


def worker_thread(ranges: pd.DataFrame) -> int:
    """The thread of a CPU engine that runs its steps: the one most step annotations are on. Table `ranges`."""
    marks = step_marks(ranges)
    return int(marks.loc[(marks["domain"] == "host") & ~marks["dummy"], "thread"].mode().iloc[0])


def _pieces(
    work: pd.DataFrame, start: Ints, end: Ints, edges: Ints, code: Ints, *, on_cpu: bool
) -> tuple[Ints, Ints, Ints]:
    """Where a piece of time starts, the row it belongs to, and how long it is: as the breakdown cuts them."""
    if not on_cpu:
        piece_start, _, row, length = exclusive(start, end, tiers(work), cuts=edges, keys=code)
        return piece_start, row, length
    own_start, own_end, own_row = innermost(start, end)
    piece_start, piece_end, of = split(own_start, own_end, edges)
    return piece_start, as_ints(own_row[of]), as_ints(piece_end - piece_start)


def _frame(step: object, category: object, name: object, ns: object, calls: object) -> pd.DataFrame:
    frame = pd.DataFrame({"step": step, "category": category, "name": name, "exclusive_ns": ns, "calls": calls})
    return frame.astype({"step": "int64", "exclusive_ns": "int64", "calls": "int64"})
