"""perflab: where do the time and memory go in vLLM, what to change, did it help, can the answer be trusted."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Imported when first used: `import perflab` itself stays light.
_LATER = {"profile": "profiling", "profiler_kwargs": "profiling", "explore": "explorer"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"perflab.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])
