"""The plugin of step records: what it writes, and that nothing it meets reaches the server it runs in.

Its base class is vLLM's; here it is an abstract class with the same methods, so that the plugin's own code runs where
vLLM is not. That a real server finds and feeds it is tested in test_capture_engine.py.
"""

import abc
import importlib.metadata
import importlib.util
import json
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from perflab.capture.environment import HOSTED, engine_environment, with_step_records
from perflab.errors import InputError
from perflab.read.step_records import read_step_records

FOLDER = HOSTED / "plugins"


class Base(abc.ABC):
    @abc.abstractmethod
    def __init__(self, vllm_config, engine_index=0): ...

    @abc.abstractmethod
    def record(self, scheduler_stats, iteration_stats, mm_cache_stats=None, engine_idx=0): ...

    @abc.abstractmethod
    def log_engine_initialized(self): ...

    @abc.abstractmethod
    def a_method_of_a_later_vllm(self): ...


@pytest.fixture
def plugin(monkeypatch, tmp_path):
    for name in ("vllm", "vllm.v1", "vllm.v1.metrics", "vllm.v1.metrics.loggers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["vllm.v1.metrics.loggers"].StatLoggerBase = Base
    monkeypatch.setenv("PERFLAB_STEP_RECORDS", str(tmp_path / "steps.jsonl"))
    spec = importlib.util.spec_from_file_location("perflab_step_records", FOLDER / "perflab_step_records.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    if module._sink is not None:
        module._sink.close()


def scheduler(**more):
    return SimpleNamespace(num_running_reqs=3, num_waiting_reqs=2, kv_cache_usage=0.25, **more)


def iteration(**more):
    return SimpleNamespace(
        num_generation_tokens=3, num_prompt_tokens=40, num_preempted_reqs=1, finished_requests=["a", "b"], **more
    )


def test_the_folder_alone_makes_the_entry_point_known():
    (found,) = importlib.metadata.distributions(path=[str(FOLDER)])
    (entry,) = found.entry_points
    assert (entry.group, entry.value) == ("vllm.stat_logger_plugins", "perflab_step_records:StepRecords")
    # Not part of every process: only servers that are told to write find it.
    assert str(FOLDER) not in engine_environment()["PYTHONPATH"]


def test_an_interpreter_with_that_environment_finds_it(tmp_path):
    env = with_step_records(engine_environment(), tmp_path / "s.jsonl")
    code = "import importlib.metadata as m; print(*[p.name for p in m.entry_points(group='vllm.stat_logger_plugins')])"
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["perflab_step_records"]
    assert env["PERFLAB_STEP_RECORDS"] == str(tmp_path / "s.jsonl")


def test_a_choice_of_plugins_is_kept_and_ours_added(tmp_path):
    assert "VLLM_PLUGINS" not in with_step_records({}, tmp_path)
    assert with_step_records({"VLLM_PLUGINS": ""}, tmp_path)["VLLM_PLUGINS"] == "perflab_step_records"
    assert with_step_records({"VLLM_PLUGINS": "theirs"}, tmp_path)["VLLM_PLUGINS"] == "theirs,perflab_step_records"


def test_a_step_becomes_a_row_with_both_clocks(plugin, tmp_path):
    before = time.time_ns(), time.monotonic_ns()
    logger = plugin.StepRecords(None, 0)
    logger.log_engine_initialized()
    logger.record(
        scheduler(num_skipped_waiting_reqs=1),
        iteration(prompt_token_stats=SimpleNamespace(computed=30, cached_tokens=10)),
        mm_cache_stats=None,
        engine_idx=1,
    )
    plugin._sink.close()
    found = read_step_records(tmp_path / "steps.jsonl")
    (row,) = found.table.to_dict("records")
    expected = {
        "engine": 1, "running": 3, "waiting": 2, "deferred": 1, "kv_usage": 0.25, "generated_tokens": 3,
        "prompt_tokens": 40, "computed_tokens": 30, "cached_tokens": 10, "preemptions": 1, "finished": 2,
        "front_end": os.getpid(),
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert before[0] <= row["t_ns"] <= time.time_ns() and before[1] <= row["monotonic_ns"] <= time.monotonic_ns()
    assert 0 < row["record_ns"] < 1e9
    assert found.table[["scheduled_tokens", "prefill_tokens", "engine_ns"]].isna().all(axis=None)
    assert (found.complete, found.dropped, found.notes) == (True, 0, [])


def test_what_this_vllm_does_not_tell_is_absent(plugin, tmp_path):
    logger = plugin.StepRecords(None, 0)
    logger.record(None, iteration(), engine_idx=0)
    logger.record(scheduler(), None)
    logger.record(None, None)
    plugin._sink.close()
    table = read_step_records(tmp_path / "steps.jsonl").table
    assert len(table) == 2
    assert table["running"].isna().tolist() == [True, False]
    assert table["computed_tokens"].isna().all() and table["deferred"].isna().all()
    assert table["generated_tokens"].tolist() == [3, 0]


def test_scheduled_tokens_where_vllm_is_told_to_say(plugin, tmp_path):
    details = SimpleNamespace(
        num_ctx_requests=1, num_ctx_tokens=64, num_generation_requests=2, num_generation_tokens=2, elapsed_ms=12.5
    )
    graph = SimpleNamespace(num_unpadded_tokens=5, num_padded_tokens=8, runtime_mode="FULL")
    logger = plugin.StepRecords(None, 0)
    logger.record(scheduler(iteration_details=details, cudagraph_stats=None), iteration())
    logger.record(scheduler(iteration_details=None, cudagraph_stats=graph), iteration())
    plugin._sink.close()
    table = read_step_records(tmp_path / "steps.jsonl").table
    assert table["scheduled_tokens"].tolist() == [66, 5]
    assert table["prefill_tokens"].isna().tolist() == [False, True]
    assert table["engine_ns"][0] == 12_500_000
    assert table["graph"].tolist() == [None, "FULL:8"]


def test_statistics_of_another_shape_switch_it_off_and_are_said_once(plugin, caplog):
    logger = plugin.StepRecords(None, 0)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            logger.record(SimpleNamespace(other=1), None)
    assert len([r for r in caplog.records if "no more step records" in r.message]) == 1


def test_a_file_that_cannot_be_made_does_not_stop_a_server(plugin, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("PERFLAB_STEP_RECORDS", str(tmp_path / "missing" / "steps.jsonl"))
    logger = plugin.StepRecords(None, 0)
    logger.record(scheduler(), iteration())
    assert "no step records" in caplog.text


def test_a_disk_that_fails_ends_the_records_and_not_the_server(plugin, monkeypatch, caplog):
    logger = plugin.StepRecords(None, 0)
    monkeypatch.setattr(plugin.os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    logger.record(scheduler(), iteration())
    plugin._sink.close()
    logger.record(scheduler(), iteration())
    logger.record(scheduler(), iteration())
    assert logger._sink is None
    assert caplog.text.count("No space left on device") == 1


def test_a_disk_that_hangs_neither_blocks_nor_fills_the_memory(plugin, monkeypatch, tmp_path):
    stuck, release = threading.Event(), threading.Event()
    real = os.write
    logger = plugin.StepRecords(None, 0)
    monkeypatch.setattr(plugin, "_MOST_WAITING", 50)
    monkeypatch.setattr(plugin.os, "write", lambda *a: (stuck.set(), release.wait(60), real(*a))[2])
    logger.record(scheduler(), iteration())
    assert stuck.wait(30), "the writer has that one"
    begin = time.perf_counter()
    for _ in range(200):
        logger.record(scheduler(), iteration())
    assert time.perf_counter() - begin < 0.5
    release.set()
    plugin._sink.close()
    found = read_step_records(tmp_path / "steps.jsonl")
    assert (len(found.table), found.dropped) == (51, 150)


def test_front_ends_of_one_server_write_a_file_each(plugin, tmp_path):
    first, second = plugin.Sink(tmp_path / "s.jsonl"), plugin.Sink(tmp_path / "s.jsonl")
    first.close()
    second.close()
    assert sorted(p.name for p in tmp_path.glob("s*")) == [f"s.{os.getpid()}.jsonl", "s.jsonl"]


def test_without_the_variable_nothing_is_written(plugin, monkeypatch, tmp_path):
    monkeypatch.delenv("PERFLAB_STEP_RECORDS")
    plugin.StepRecords(None, 0).record(scheduler(), iteration())
    assert list(tmp_path.iterdir()) == []


LINE = {"t": 1, "m": 2, "engine": 0, "generated": 1, "prompt": 0, "preempted": 0, "finished": 0, "ns": 5}


def written(folder: Path, *lines: str) -> Path:
    file = folder / "s.jsonl"
    file.write_text("".join(lines))
    return file


HEAD = '{"format":1,"pid":7,"t":0,"m":0}\n'


def test_a_last_line_cut_short_is_left_out_and_said(tmp_path):
    found = read_step_records(written(tmp_path, HEAD, json.dumps(LINE) + "\n", json.dumps(LINE)[:30]))
    assert len(found.table) == 1 and not found.complete and found.dropped is None
    assert found.notes == ["line 3 is cut short and left out"]


def test_no_steps_is_an_empty_table(tmp_path):
    assert read_step_records(written(tmp_path, HEAD)).table.empty


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([], "holds no step records"),
        (['{"a": 1}\n'], "no format"),
        (['{"format":2,"pid":7}\n'], "newer than this perflab reads"),
        ([HEAD, '{"t":1}\n'], "a step lacks engine"),
        ([HEAD, "{broken\n", json.dumps(LINE) + "\n"], "is not a step record"),
        ([HEAD, "[1]\n", json.dumps(LINE) + "\n"], "not an object"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path, lines, complaint):
    with pytest.raises(InputError, match=complaint):
        read_step_records(written(tmp_path, *lines))
