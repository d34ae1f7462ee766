"""The command line as scripts rely on it: exit status, stdout, one line on stderr."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from perflab.cli import main

HEAVY = ("vllm", "torch", "matplotlib", "papermill", "pandas", "numpy", "transformers")


def test_help_is_quick_and_light() -> None:
    script = f"import sys, perflab, perflab.cli\ntry:\n    perflab.cli.main(['--help'])\nexcept SystemExit:\n    pass\nprint([m for m in {HEAVY} if m in sys.modules])"  # noqa: E501
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    best = min(_cpu_seconds([sys.executable, "-m", "perflab", "--help"]) for _ in range(3))
    assert 0 < best < 0.5


def _cpu_seconds(argv: list[str]) -> float:
    """What the program itself used: how long it takes depends on what else the machine does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["breakdown", "nope"], "nope: no such run directory or recorded run"),
        (["latency", "nope"], "nope: no such run directory or recorded run"),
        (["report", "nope", "-o", "x.html"], "nope: no such run directory or recorded run"),
        (["run", "nope.yaml"], "nope.yaml"),
        (["import", "nope", "-o", "x"], "nope: no such file or folder"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("perflab: ") and says in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == [], "nothing was made"


def test_bad_usage_is_status_2() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["breakdown"])
    assert caught.value.code == 2


@pytest.mark.parametrize("command", ["breakdown", "latency"])
def test_json_is_one_document_and_nothing_else(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "llama3-8b-bf16", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] == 1
    assert err == ""


def test_the_terminal_says_trust_first_then_shares_that_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["breakdown", "llama3-8b-tp2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Can it be trusted?")
    rows = {}
    for line in out.partition("ms a step, share")[2].splitlines():
        cells = line.split()
        if cells and not line.startswith("   ") and cells[0] not in rows:
            rows[cells[0]] = cells[1:4]
    # Decode: milliseconds of rank 0, of rank 1, mean share.
    groups = [rows[name] for name in ("attention", "compute", "memory", "communication", "idle")]
    for rank in (0, 1):
        assert sum(float(cells[rank]) for cells in groups) == pytest.approx(float(rows["step"][rank]), abs=0.004)
    assert sum(float(cells[2]) for cells in groups) == pytest.approx(100, abs=0.3)
    assert float(rows["communication"][2]) > 5


def test_latency_table_names_what_can_be_doubted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["latency", "llama3-8b-bf16"]) == 0
    out = capsys.readouterr().out
    assert "TTFT p50" in out and "24.52" in out
    assert "4 requests are too few for p90" in out


def test_lab_passes_options_on_and_others_refuse_them(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr("perflab.lab._replace_by", lambda argv, env: asked.append(argv) or 0)
    assert main(["lab", "--no-browser", "--port", "9999"]) == 0
    assert asked[0][-4:-1] == ["--no-browser", "--port", "9999"]
    assert asked[0][-1].endswith("notebooks/00_start_here.ipynb")
    assert "--ServerApp.ip=127.0.0.1" in asked[0]
    with pytest.raises(SystemExit) as caught:
        main(["latency", "llama3-8b-bf16", "--no-browser"])
    assert caught.value.code == 2


def test_compare_prints_a_table_or_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "llama3-8b-bf16", "llama3-8b-fp8"]) == 0
    text = capsys.readouterr().out
    assert text.index("Can they be compared?") < text.index("What differs") < text.index("Findings")
    row = next(line.split() for line in text.splitlines() if line.startswith("  step "))
    before, after, change = (float(cell) for cell in row[1:4])
    assert change == pytest.approx(after - before, abs=0.0011)
    assert main(["compare", "llama3-8b-bf16", "llama3-8b-fp8", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1 and document["metrics"][0]["metric"] == "tpot_p50_ms"


@pytest.mark.parametrize(
    "arguments",
    [
        ["compare", "llama3-8b-bf16"],
        ["compare", "llama3-8b-bf16", "no-such-run"],
        ["compare", "llama3-8b-bf16", "llama3-8b-fp8", "--rules", "no-such-file.toml"],
        ["breakdown", "llama3-8b-bf16", "--thresholds", "no-such-file.toml"],
        ["latency", "llama3-8b-bf16", "--thresholds", "no-such-file.toml"],
        ["report", "llama3-8b-bf16", "-o", "never-written.html", "--rules", "no-such-file.toml"],
    ],
)
def test_compare_and_users_files_are_refused_in_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(arguments)
    except SystemExit as stop:
        status = int(str(stop.code))
    said = capsys.readouterr()
    assert status == 2 and said.out == ""
    assert "Traceback" not in said.err and said.err.strip()
