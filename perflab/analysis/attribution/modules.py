"""From a stack of modules and functions to the part of the model, and the layer."""

from __future__ import annotations

import functools

from perflab.knowledge.modules import module_rules

_MODULE = "nn.Module: "


@functools.lru_cache(maxsize=65536)
def part_of(stack: tuple[str, ...]) -> tuple[str | None, int | None]:
    """The part of the model and the layer that a stack names, outermost first; None for what it does not tell.

    Examples
    --------
    >>> part_of(("nn.Module: LlamaModel_0", "nn.Module: LlamaDecoderLayer_3", "nn.Module: LlamaMLP_3",
    ...          "nn.Module: SiluAndMul_3"))
    ('mlp.act_fn', 3)
    """
    rules = module_rules()
    for name in reversed(stack):
        if told := rules.nvtx_path.search(name):
            if found := rules.layer_path.search(told[1]):
                return found[2] or "layer", int(found[1])
            return told[1].rsplit(".", 1)[-1], None
    elements = [name.removeprefix(_MODULE) for name in stack if name.startswith(_MODULE)]
    layer = next((int(found[1]) for name in elements if (found := rules.layer_element.search(name))), None)
    path = "/".join(name.rsplit("_", 1)[0] for name in elements)
    if path:
        for pattern, module in rules.modules:
            if pattern.search(path):
                return module, layer
    for pattern, module in rules.frames:
        if any(pattern.search(name) for name in stack if not name.startswith(_MODULE)):
            return module, layer
    return None, layer


def norm_instance(stack: tuple[str, ...]) -> str:
    """What tells one norm of a layer from another: the innermost element, with its number."""
    return stack[-1] if stack else ""
