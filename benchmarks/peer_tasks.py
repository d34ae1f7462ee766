"""What is timed in `peers.py`, each in a process of its own: python peer_tasks.py TASK FOLDER ANSWER.json

Run by the Python of the tool in question, so nothing is imported that a task does not need. A task writes when its
imports were done and what it found; `peers.py` takes wall time, processor time and peak memory from outside.
`-answers` are not timed: they ask more, to compare results.
"""

import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


def traces(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith((".json", ".gz")))


def perflab(folder: Path) -> Answer:
    """Reading and breakdown as a library, for the question that the others answer too."""
    from perflab.tasks.breakdown import breakdown

    imported()
    report = breakdown(folder, attribution=False)
    return {"ranks": {rank.rank: {"idle_ns": rank.idle_ns} for rank in report.ranks if rank.window_ns}}


def perflab_cli(folder: Path) -> Answer:
    """`perflab breakdown FOLDER`: all that the command prints, attribution included where files are small."""
    from perflab import cli

    imported()
    if cli.main(["breakdown", str(folder)]):
        raise SystemExit("perflab breakdown failed")
    return {}


def hta(folder: Path) -> Answer:
    """Reading, temporal breakdown and kernel breakdown, as HTA's documentation has them, without pictures."""
    from hta.trace_analysis import TraceAnalysis

    imported()
    found = TraceAnalysis(trace_dir=str(folder))
    found.get_temporal_breakdown(visualize=False)
    found.get_gpu_kernel_breakdown(visualize=False)
    return {}


def plain(folder: Path) -> Answer:
    """What a notebook does without a tool: json.load, a DataFrame of all events, time by kernel."""
    import gzip

    import pandas as pd

    imported()
    for path in traces(folder):
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            events = pd.DataFrame(json.load(file)["traceEvents"])
        kernels = events[events["cat"] == "kernel"]
        kernels.groupby("name")["dur"].agg(["size", "sum"]).sort_values("sum", ascending=False)
    return {}


def hta_answers(folder: Path) -> Answer:
    """HTA's tables as they are, and how many events of which category it takes for device work."""
    from hta.trace_analysis import TraceAnalysis

    found = TraceAnalysis(trace_dir=str(folder))
    temporal = found.get_temporal_breakdown(visualize=False)
    _, kernels = found.get_gpu_kernel_breakdown(visualize=False, num_kernels=10**6)
    symbols = found.t.symbol_table.get_sym_table()
    counted = {
        rank: {symbols[code]: int(n) for code, n in events[events["stream"].ne(-1)]["cat"].value_counts().items()}
        for rank, events in found.t.traces.items()
    }
    return {
        "temporal": temporal.to_dict("records"),
        "kernels": kernels[["rank", "name", "sum (us)"]].to_dict("records"),
        "overlap": found.get_comm_comp_overlap(visualize=False).to_dict("records"),
        "counted": counted,
    }


def hta_exact_answers(folder: Path) -> Answer:
    """The same with times not rounded to whole microseconds."""
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    return hta_answers(folder)


def perflab_answers(folder: Path) -> Answer:
    """What perflab says of all device work of each rank, steps or not, in HTA's terms."""
    from perflab.analysis.breakdown import breakdown as gpu_breakdown
    from perflab.analysis.breakdown import overlaps, summary
    from perflab.tasks.breakdown import breakdown

    found = {}
    for rank in breakdown(folder, attribution=False).ranks:
        if rank.kind != "gpu" or not rank.window_ns:
            continue
        kernels, no_steps = rank.kernels, rank.steps.iloc[:0]
        (whole,) = summary(gpu_breakdown(kernels, no_steps))
        talks = kernels[kernels["category"] == "communication"]
        # One category for all that computes: overlaps of its kernels among themselves count once.
        computes = (kernels["kind"] == "kernel") & (kernels["category"] != "communication")
        merged = kernels.assign(category=kernels["category"].astype("object").where(~computes, "gemm"))
        both = overlaps(merged[computes | (kernels["category"] == "communication")], no_steps)
        both = both[(both["category"] != both["with_category"])]
        totals = rank.top_kernels()
        totals = totals[totals["kind"] == "kernel"]
        found[rank.rank] = {
            "window_ns": whole["window_ns"], "idle_ns": whole["idle_ns"],
            "compute_ns": union_of(kernels[computes]), "communication_ns": union_of(talks),
            "overlap_ns": int(both["overlap_ns"].max()) if len(both) else 0,
            "kernels": dict(zip(totals["name"].astype(str), totals["dur_ns"].astype(int).tolist(), strict=True)),
            "communication_names": sorted(set(talks["name"].astype(str))), "steps": len(rank.steps),
            "counted": {str(kind): int(n) for kind, n in kernels["kind"].value_counts().items() if n},
        }  # fmt: skip
    return found


def union_of(kernels: Any) -> int:
    from perflab.analysis.intervals import union_length

    start = kernels["start_ns"].to_numpy()
    return union_length(start, start + kernels["dur_ns"].to_numpy())


_import_end = 0.0


def imported() -> None:
    """Says that all is imported: what comes is the work."""
    global _import_end
    _import_end = time.perf_counter()


TASKS = {
    "perflab": perflab, "perflab-cli": perflab_cli, "hta": hta, "plain": plain,
    "hta-answers": hta_answers, "hta-exact-answers": hta_exact_answers,
    "perflab-answers": perflab_answers,
}  # fmt: skip
PACKAGES = ("perflab", "HolisticTraceAnalysis", "pandas", "numpy")


def versions() -> dict[str, str]:
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except ImportError:
            continue
    return found


def main(task: str, folder: str, answer: str) -> None:
    said = TASKS[task](Path(folder))
    work_s = time.perf_counter() - _import_end
    Path(answer).write_text(json.dumps({"work_s": work_s, "versions": versions(), "said": said}))


if __name__ == "__main__":
    main(*sys.argv[1:])
