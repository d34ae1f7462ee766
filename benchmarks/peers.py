"""Time and memory of perflab beside other tools on the same files, and whether they say the same.

    python benchmarks/peers.py --hta PYTHON [--fixtures FOLDER] [--kernels 1000000]
        [--rounds 5] [--only TITLE ...] [--out results.json]

PYTHON is one of an environment with HolisticTraceAnalysis 0.5.0 and pandas below 3. Files: traces that HTA's own tests
use (where FOLDER has them), recorded vLLM traces, and a synthetic one. In each round every task runs once, in a
process of its own, every second round backwards; ratios are of the same round. Without `--hta` only the plain
notebook way (json.load and pandas) is compared. TraceLens is left out: `tracelens` on PyPI is another project.
"""

import argparse
import json
import lzma
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import peer_results
from peer_rounds import Cost, median, ratio, run, turns
from synthetic_trace import write_trace

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
FIXTURES = ROOT.parent / "shared" / "fixtures"
OTHERS = {
    "HTA, all-to-all": "kineto/hta/negative_queue_length_values_check/rank0.json.gz",
    "HTA, NCCL": "kineto/hta/nccl_parser_config/nccl_data.json.gz",
    "ResNet, MI300X": "kineto/tracelens/mi300/resnet_act_checkpoint.json.gz",
}
RECORDED = {"vLLM, 8B": "llama3-8b-bf16", "vLLM, 70B on two GPUs": "llama3-70b-bf16-tp2"}
OURS = ("perflab", "perflab-cli")
RATIOS = {"wall_s": "time", "cpu_s": "processor time", "peak_mb": "peak memory"}


def prepare(place: Path, fixtures: Path, kernels: int, only: Sequence[str]) -> dict[str, Path]:
    """A folder of traces each, as HTA wants them."""
    found = {}
    for title, name in OTHERS.items():
        if only and title not in only:
            continue
        if (fixtures / name).is_file():
            found[title] = place / Path(name).parent.name
            found[title].mkdir()
            shutil.copy(fixtures / name, found[title])
        else:
            print(f"left out, no such file: {name}")
    for title, name in RECORDED.items():
        if only and title not in only:
            continue
        found[title] = place / name
        found[title].mkdir()
        for packed in sorted((ROOT / "data" / "recorded" / name / "profile" / "torch").glob("rank*.json.xz")):
            (found[title] / packed.stem).write_bytes(lzma.decompress(packed.read_bytes()))
    if kernels and (not only or "synthetic" in only):
        found["synthetic"] = place / "synthetic"
        found["synthetic"].mkdir()
        write_trace(found["synthetic"] / "rank0.json", kernels)
    return found


class Tasks:
    """Runs tasks of `peer_tasks.py`, each by the Python of its tool."""

    def __init__(self, place: Path, hta: str | None) -> None:
        self.place, self.hta = place, hta
        self.versions: dict[str, dict[str, str]] = {}
        os.environ["XDG_CACHE_HOME"] = str(place / "cache")
        # Installed tools come compiled; a checkout is compiled by the warm-up, unless this forbids it.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        # Nobody compiles modules anew at every start, so no tool is measured at it.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(place / "compiled")

    @property
    def timed(self) -> list[str]:
        return [*OURS, *(["hta"] if self.hta else []), "plain"]

    def do(self, task: str, folder: Path) -> tuple[Cost, Any]:
        """What one task cost, and what it says."""
        python = self.hta if self.hta and task.startswith("hta") else sys.executable
        answer = self.place / "answer.json"
        cost = run([python, str(HERE / "peer_tasks.py"), task, str(folder), str(answer)], self.place / "log")
        told = json.loads(answer.read_text())
        self.versions["HTA" if python == self.hta else "perflab"] = told["versions"]
        return replace(cost, work_s=told["work_s"]), told["said"]

    def raw(self, folder: Path, names: Sequence[str]) -> dict[str, Any]:
        listed, answer = self.place / "names.json", self.place / "answer.json"
        listed.write_text(json.dumps(names))
        run([sys.executable, str(HERE / "peer_raw.py"), str(folder), str(answer), str(listed)], self.place / "log")
        return dict(json.loads(answer.read_text()))


def warm_up(tasks: Tasks, place: Path) -> None:
    """Every task once on a few kernels, so that modules are compiled. The traces were just written: they are cached."""
    place.mkdir()
    write_trace(place / "rank0.json", 1000)
    for task in tasks.timed:
        tasks.do(task, place)


def time_all(tasks: Tasks, folder: Path, rounds: int) -> dict[str, list[Cost]]:
    """Every task by turns."""
    costs: dict[str, list[Cost]] = {task: [] for task in tasks.timed}
    for order in turns(tasks.timed, rounds):
        for task in order:
            cost, _ = tasks.do(task, folder)
            print(f"  {task} {cost.wall_s:.2f} s, {cost.cpu_s:.2f} s, {cost.peak_mb:,.0f} MB", file=sys.stderr)
            costs[task].append(cost)
    return costs


def compare(tasks: Tasks, folder: Path) -> list[peer_results.Difference]:
    """HTA's and perflab's figures of each rank, and what lies between."""
    _, ours = tasks.do("perflab-answers", folder)
    _, theirs = tasks.do("hta-answers", folder)
    _, exact = tasks.do("hta-exact-answers", folder)
    names = sorted({name for one in ours.values() for name in one["communication_names"]})
    raw = tasks.raw(folder, names)
    rows = []
    for rank, one in ours.items():
        top = peer_results.longest(one["kernels"])
        hta = [peer_results.of_hta(said, top)[int(rank)] for said in (theirs, exact)]
        counts = [peer_results.of_counts(said, top) for said in (*raw[rank], one)]
        rows += peer_results.differences(int(rank), [*hta, *counts])
    return rows


def megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


def cost_lines(title: str, folder: Path, costs: Mapping[str, Sequence[Cost]]) -> list[str]:
    """A line a task: medians, and how many times as much as perflab as a library."""
    lines = []
    for task, each in costs.items():
        told = [
            f"{median(each, 'wall_s'):.2f} s",
            f"{median(each, 'work_s'):.2f} s",
            f"{median(each, 'peak_mb'):,.0f} MB",
        ]
        beside = ["1" if task == "perflab" else str(ratio(costs, task, "perflab", what)) for what in RATIOS]
        where = f"{title} ({megabytes(folder):,.1f} MB)"
        lines.append("| " + " | ".join([where, task, *told, *beside, str(len(each))]) + " |")
    return lines


COSTS = [
    "| file | task | time | without start and imports | peak memory "
    "| time: times perflab's | processor time | peak memory | n |",
    "|---|---|---|---|---|---|---|---|---|",
]


def as_json(costs: Mapping[str, Sequence[Cost]]) -> dict[str, Any]:
    ratios = {
        f"{task} over {ours}": {what: asdict(ratio(costs, task, ours, what)) for what in RATIOS}
        for ours in OURS for task in costs if task not in OURS
    }  # fmt: skip
    return {"costs": {task: [asdict(cost) for cost in each] for task, each in costs.items()}, "ratios": ratios}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--hta", metavar="PYTHON", help="a Python with HolisticTraceAnalysis; without it HTA is left out"
    )
    parser.add_argument("--fixtures", type=Path, default=FIXTURES, help="folder with kineto/ of other people's traces")
    parser.add_argument("--kernels", type=int, default=1_000_000, help="size of the synthetic trace; 0: none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[], metavar="FILE", help="titles of files, or synthetic")
    parser.add_argument("--no-results", action="store_true", help="only time and memory")
    parser.add_argument("--out", type=Path, help="write all figures as JSON")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    found: dict[str, Any] = {"files": {}}
    with tempfile.TemporaryDirectory() as name:
        tasks = Tasks(Path(name), asked.hta)
        warm_up(tasks, Path(name) / "warm-up")
        lines, shown = [*COSTS], [*peer_results.HEADER]
        for title, folder in prepare(Path(name), asked.fixtures, asked.kernels, asked.only).items():
            print(f"{title} ...", file=sys.stderr, flush=True)
            costs = time_all(tasks, folder, asked.rounds)
            lines += cost_lines(title, folder, costs)
            found["files"][title] = {"mb": megabytes(folder), **as_json(costs)}
            if asked.hta and not asked.no_results:
                rows = compare(tasks, folder)
                shown += peer_results.table(title, rows)
                found["files"][title]["results"] = [asdict(row) for row in rows]
            if asked.out:
                asked.out.write_text(json.dumps({**found, "versions": tasks.versions}, indent=1))
        print("\n".join([*lines, "", *(shown if asked.hta and not asked.no_results else []), ""]))
        print(json.dumps(tasks.versions))


if __name__ == "__main__":
    main()
