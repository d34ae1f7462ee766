"""How parts of a model show in traces (`modules.toml`): class names, functions, words in kernel names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from perflab.knowledge.toml import shipped_toml


@dataclass(frozen=True)
class ModuleRules:
    """The rules, compiled.

    Attributes
    ----------
    frames, modules
        Pattern and the part of a model it stands for, in the order in which they are tried: for Python functions, and
        for stacks of class names joined by `/`.
    words
        By what they mean: words in kernel names.
    layer_element, layer_path, nvtx_path
        Find the layer's number in an element of a stack, in a path of parameters (and what follows it), and such a
        path in an NVTX range.
    """

    frames: tuple[tuple[re.Pattern[str], str], ...]
    modules: tuple[tuple[re.Pattern[str], str], ...]
    words: Mapping[str, re.Pattern[str]]
    layer_element: re.Pattern[str]
    layer_path: re.Pattern[str]
    nvtx_path: re.Pattern[str]

    def frame(self, name: str) -> bool:
        """Whether a Python frame tells something: a module's, or one a rule names."""
        return name.startswith("nn.Module") or any(pattern.search(name) for pattern, _ in self.frames)


@lru_cache(maxsize=1)
def module_rules() -> ModuleRules:
    """The rules that come with perflab."""
    table = shipped_toml("modules.toml")
    return ModuleRules(
        frames=tuple((re.compile(rule["pattern"]), rule["module"]) for rule in table["frame"]),
        modules=tuple((re.compile(rule["pattern"]), rule["module"]) for rule in table["module"]),
        words={key: re.compile(value) for key, value in table["words"].items() if key != "evidence"},
        layer_element=re.compile(table["layer"]["element"]),
        layer_path=re.compile(table["layer"]["path"]),
        nvtx_path=re.compile(table["nvtx"]["path"]),
    )
