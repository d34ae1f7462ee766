"""Scrapes, telemetry and clock anchors: what is written, and that nothing in them stops a run."""

import http.server
import json
import os
import threading
import time
from itertools import pairwise
from statistics import median

import pytest

from perflab.capture.clock import anchor, write_anchors
from perflab.capture.metrics import (
    MetricsSampler,
    cache_config,
    cached_prompt_tokens,
    increase,
    moving_part,
    settled,
    total,
)
from perflab.capture.sampler import Sampler
from perflab.capture.telemetry import TelemetrySampler

BEFORE = """\
# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 0.0
vllm:num_requests_running{engine="1"} 0.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0"} 10.0
# TYPE vllm:prefix_cache_hits_created gauge
vllm:prefix_cache_hits_created{engine="0"} 1.7e+09
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0"} 100.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} 3.0
vllm:time_to_first_token_seconds_sum{engine="0"} 0.2
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",cache_dtype="auto",enable_prefix_caching="False",num_gpu_blocks="91"} 1.0
# TYPE python_info gauge
python_info{version="3"} 1.0
"""
AFTER = BEFORE.replace("} 10.0", "} 26.0").replace("} 100.0", "} 228.0")


def test_counters_are_summed_and_compared():
    assert total(BEFORE.replace('engine="1"} 0.0', 'engine="1"} 2.0'), "vllm:num_requests_running") == 2.0
    assert increase(BEFORE, AFTER, "vllm:prefix_cache_hits_total") == 16.0
    assert cached_prompt_tokens(BEFORE, AFTER) == (16.0, 128.0)
    # Not reported is not nothing.
    assert total(BEFORE, "vllm:absent") is None
    assert cached_prompt_tokens("", AFTER) is None


def test_only_gauges_and_counters_of_vllm_are_kept_while_sampling():
    names = [line.partition("{")[0] for line in moving_part(BEFORE).splitlines()]
    assert names == ["vllm:num_requests_running"] * 2 + [
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_queries_total",
    ]


def test_settings_of_the_cache():
    assert cache_config(BEFORE) == {
        "block_size": 128, "num_gpu_blocks": 91, "cache_dtype": "auto", "enable_prefix_caching": False,
    }  # fmt: skip
    assert cache_config("") == {}


@pytest.fixture
def server():
    """A real HTTP server that answers /metrics with what it is told, or with an error."""
    texts = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = texts.pop(0) if len(texts) > 1 else texts[0]
            self.send_response(500 if text is None else 200)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", texts
        running.shutdown()


def test_sampling_goes_on_after_a_failed_scrape_and_past_a_proxy(server, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    url, texts = server
    texts += [BEFORE, None, AFTER]
    file = tmp_path / "m.jsonl"
    with MetricsSampler(url, file, 0.02) as sampler:
        end = time.monotonic() + 10
        while len(file.read_text().splitlines()) < 3 if file.exists() else True:
            assert time.monotonic() < end
            time.sleep(0.01)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert sampler.failures == 1 and "500" in sampler.last_failure
    assert [total(row["text"], "vllm:prefix_cache_hits_total") for row in rows][:2] == [10.0, 26.0]
    times = [row["t_ns"] for row in rows]
    assert times == sorted(times) and abs(times[-1] - time.time_ns()) < 60e9


def test_the_last_scrape_waits_for_running_requests(server):
    url, texts = server
    texts += [BEFORE.replace('engine="1"} 0.0', 'engine="1"} 1.0'), AFTER]
    assert settled(url) == AFTER
    texts[:] = [BEFORE.replace('engine="1"} 0.0', 'engine="1"} 1.0')]
    begin = time.monotonic()
    settled(url, patience_s=0.2)
    assert 0.2 <= time.monotonic() - begin < 5


class Broken(Sampler):
    def sample(self):
        raise RuntimeError("no")


def test_a_sampler_that_always_fails_writes_nothing_and_raises_nothing(tmp_path):
    with Broken(tmp_path / "f", 0.01) as sampler:
        time.sleep(0.1)
    assert sampler.failures > 1 and sampler.last_failure == "RuntimeError: no"
    assert (tmp_path / "f").read_text() == ""


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path):
    with Broken(tmp_path / "absent" / "f", 0.01) as sampler:
        time.sleep(0.05)
    assert not sampler.file.exists()


def test_an_interval_is_kept(tmp_path):
    class Ticks(Sampler):
        def sample(self):
            return [str(time.monotonic())]

    begin = time.monotonic()
    with Ticks(tmp_path / "t", 0.05):
        time.sleep(0.8)
    passed = time.monotonic() - begin
    ticks = [float(line) for line in (tmp_path / "t").read_text().splitlines()]
    assert 6 <= len(ticks) <= passed / 0.05 + 2
    assert median(after - before for before, after in pairwise(ticks)) == pytest.approx(0.05, rel=0.5)


def test_telemetry_of_this_machine(tmp_path):
    with TelemetrySampler(tmp_path / "t.jsonl", 0.05) as sampler:
        sampler.watch("engine", os.getpid())
        end = time.monotonic() + 10
        busy = 0
        while len((tmp_path / "t.jsonl").read_text().splitlines() if (tmp_path / "t.jsonl").exists() else []) < 30:
            busy += sum(range(1000))
            assert time.monotonic() < end
        sampler.watch("engine", None)
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert sampler.failures == 0
    assert {"t_ns", "metric", "labels", "value"} == set(rows[0])
    by_name = {row["metric"]: row["value"] for row in rows}
    assert by_name["engine_rss_bytes"] > 10e6
    assert max(row["value"] for row in rows if row["metric"] == "engine_cpu_percent") > 10


def test_anchors_tie_the_two_clocks(tmp_path):
    first = anchor("p", "before")
    time.sleep(0.05)
    last = anchor("p", "after")
    assert last.perf_counter_ns - first.perf_counter_ns == pytest.approx(last.time_ns - first.time_ns, abs=20e6)
    assert 0 <= first.width_ns < 10e6
    write_anchors(tmp_path / "clock.json", [first, last])
    found = json.loads((tmp_path / "clock.json").read_text())
    assert [row["when"] for row in found["anchors"]] == ["before", "after"]
    assert found["shared_between_processes"] is ("CLOCK_MONOTONIC" in found["clock"])
