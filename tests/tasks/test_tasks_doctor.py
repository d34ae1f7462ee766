"""What follows from what a machine is: abilities, what rules them out, and the commands."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest

from perflab import terminal
from perflab.capture.machine import Machine, ModelCache, Program, Space
from perflab.capture.probe import Probe
from perflab.cli import main
from perflab.runs import Gpu, Hardware
from perflab.tasks.doctor import ABILITIES, DoctorReport, Engine, diagnosis, doctor, lacking

GB = 1 << 30
ROOM = Space("/work", 100 * GB, 200 * GB, True)
HOST = Hardware(cpu="Some CPU", cores=8, memory_bytes=64 * GB)
GPUS = Hardware(gpus=[Gpu(name="NVIDIA H200", memory_bytes=140 * GB)], driver="580.1", memory_bytes=64 * GB)
LAPTOP = Machine(
    python_version="3.12.3", python="python", architecture="x86_64", hardware=HOST,
    cpu_flags=frozenset(("avx2", "avx512f", "avx512_bf16")), memory_available=32 * GB, nvml_problem="no library",
    chromium="/usr/bin/chromium", loopback_port=4242, runs=ROOM, cache=ROOM,
    shm=Space("/dev/shm", 8 * GB, 8 * GB, True), open_files=65535,
    model_cache=ModelCache("/hub", 3, True), has_hf_token=True,
)  # fmt: skip
SERVER = dataclasses.replace(
    LAPTOP, hardware=GPUS, nvml_problem=None, nvidia_smi=Program("/bin/nvidia-smi", "580"),
    nsys=Program("/bin/nsys", "version 2026.2"), ncu=Program("/bin/ncu", "version 2026.2"), counters_restricted=False,
)  # fmt: skip


def vllm(flavour: str, broken: dict[str, str] | None = None) -> Engine:
    found = Probe("python", flavour, "0.32.0", "2.13.0", "3.12.3", {}, frozenset(), broken or {})  # type: ignore[arg-type]
    return Engine("python", found)


NO_VLLM = Engine("python", problem="vLLM is not installed in python; install it there")


def item(report: DoctorReport, check: str):
    return next(item for item in report.items if item.check == check)


def able(report: DoctorReport) -> set[str]:
    return {ability for ability, there in report.can.items() if there}


def test_a_laptop_runs_on_its_cpu() -> None:
    report = diagnosis(LAPTOP, vllm("cpu"))
    assert able(report) == {"run", "profile", "screenshots"}
    assert {i.check for i in report.items if i.status in ("warn", "missing")} == set(), (
        "no GPU is no defect of a laptop"
    )
    assert item(report, "nsys").status == "info"


def test_a_gpu_server_does_everything() -> None:
    report = diagnosis(SERVER, vllm("gpu"))
    assert able(report) == set(ABILITIES)
    assert all(i.status == "ok" for i in report.items)
    assert lacking(report, ["run", "profile", "gpu"]) is None


@pytest.mark.parametrize(
    ("machine", "engine", "check", "lost", "command"),
    [
        (LAPTOP, NO_VLLM, "vllm", {"run", "profile"}, ("pip", "perflab[cpu]")),
        (SERVER, NO_VLLM, "vllm", {"run", "profile", "gpu"}, ("pip", "perflab[gpu]")),
        (LAPTOP, vllm("gpu"), "vllm", {"run", "profile"}, ("pip", "perflab[cpu]")),
        (SERVER, vllm("cpu"), "vllm", {"gpu"}, ("conda", "environment.yml")),
        (dataclasses.replace(SERVER, nsys=None), vllm("gpu"), "nsys", {"nsys"}, ("apt", "nsight-systems-cli")),
        (dataclasses.replace(SERVER, ncu=None), vllm("gpu"), "ncu", {"ncu"}, ("conda", "nsight-compute")),
        (
            dataclasses.replace(SERVER, counters_restricted=True), vllm("gpu"), "ncu", {"ncu"},
            ("docker", "--cap-add SYS_ADMIN"),
        ),
        (dataclasses.replace(LAPTOP, cpu_flags=frozenset(("sse4_2",))), vllm("cpu"), "cpu", {"run", "profile"}, None),
        (dataclasses.replace(SERVER, cpu_flags=frozenset(("sse4_2",))), vllm("gpu"), "cpu", set(), None),
        (dataclasses.replace(LAPTOP, cpu_flags=frozenset(("avx2",))), vllm("cpu"), "cpu", set(), None),
        (
            dataclasses.replace(LAPTOP, runs=Space("/work", 1 << 20, GB, True)), vllm("cpu"), "disk_runs",
            {"run", "profile"}, ("shell", "-o"),
        ),
        (
            dataclasses.replace(LAPTOP, loopback_port=None), vllm("cpu"), "loopback", {"run", "profile"},
            ("shell", "ip link set lo up"),
        ),
        (dataclasses.replace(LAPTOP, chromium=None), vllm("cpu"), "chromium", {"screenshots"}, ("pip", "playwright")),
        (
            dataclasses.replace(LAPTOP, shm=Space("/dev/shm", 64 << 20, 64 << 20, True)), vllm("cpu"), "shm", set(),
            ("docker", "--ipc=host"),
        ),
        (dataclasses.replace(LAPTOP, open_files=1024), vllm("cpu"), "open_files", set(), ("shell", "ulimit -n 65535")),
        (dataclasses.replace(LAPTOP, memory_limit=2 * GB), vllm("cpu"), "memory", set(), None),
        (dataclasses.replace(LAPTOP, python_version="3.10.1"), vllm("cpu"), "python", set(), ("conda", "python=3.12")),
        (dataclasses.replace(LAPTOP, has_hf_token=False), vllm("cpu"), "hf_token", set(), ("shell", "HF_TOKEN")),
        (
            dataclasses.replace(LAPTOP, model_cache=ModelCache("/hub", 0, False)), vllm("cpu"), "model_cache", set(),
            ("shell", "HF_HOME"),
        ),
        (
            dataclasses.replace(LAPTOP, runs=Space("/work", 9 * GB, 9 * GB, False)), vllm("cpu"), "write_access", set(),
            ("shell", "cd "),
        ),
        (
            LAPTOP, vllm("cpu", {"torchvision": "operator torchvision::nms does not exist"}), "broken_packages", set(),
            ("pip", "uninstall -y torchvision"),
        ),
        (
            dataclasses.replace(LAPTOP, nvidia_smi=Program("/bin/nvidia-smi", problem="no driver")), vllm("cpu"), "gpu",
            set(), ("docker", "--gpus all"),
        ),
    ],
)  # fmt: skip
def test_what_is_missing_says_what_it_costs_and_what_brings_it(
    machine: Machine, engine: Engine, check: str, lost: set[str], command: tuple[str, str] | None
) -> None:
    whole = diagnosis(SERVER, vllm("gpu")) if machine.hardware.gpus else diagnosis(LAPTOP, vllm("cpu"))
    report = diagnosis(machine, engine)
    found = item(report, check)
    assert found.status != "ok" and found.without
    assert able(whole) - able(report) == lost
    if command is not None:
        assert command[1] in found.commands[command[0]]
    for ability in lost:
        why = lacking(report, [ability])
        assert why is not None and "\n" not in why and ability in why
    assert check.replace("_", " ") in terminal.doctor(report)


def test_a_part_that_did_not_answer_is_named() -> None:
    report = diagnosis(dataclasses.replace(LAPTOP, unanswered={"hardware": "no answer within 20 s"}), vllm("cpu"))
    assert "no answer within 20 s" in item(report, "unanswered").detail


def test_an_empty_machine_is_no_error() -> None:
    report = diagnosis(Machine(cpu_flags=None), NO_VLLM)
    assert not report.can["run"]
    json.dumps(report.to_json(), allow_nan=False)


def test_without_vllm_the_command_line_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    real = shutil.which("python3") or "python3"
    python.write_text(f'#!/bin/sh\nexec {real} -S "$@"\n')  # -S: no site-packages, so no vLLM
    python.chmod(0o755)
    monkeypatch.setenv("PERFLAB_VLLM_PYTHON", str(python))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--json"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (document["schema"], document["can"]["run"], document["vllm"], err) == (1, False, None, "")
    assert "hf_secret" not in out
    assert main(["doctor", "--require", "run"]) == 2
    out, err = capsys.readouterr()
    assert "hf_secret" not in out
    assert err.count("\n") == 1 and re.match(r"perflab: not possible on this machine: run: .*pip install", err)


@pytest.mark.engine
@pytest.mark.usefixtures("vllm")
def test_the_engine_of_this_machine() -> None:
    report = doctor()
    assert report.engine.probe is not None
    assert report.can["run"] and report.can["profile"]
    assert report.can["gpu"] == bool(report.machine.hardware.gpus)
