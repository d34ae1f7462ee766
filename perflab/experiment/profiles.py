"""The `profile` passes of an experiment file -> `ProfilePass` records."""

from __future__ import annotations

from typing import Any, cast

from perflab.experiment.nodes import Table, checked_name
from perflab.experiment.spec import ProfileKind, ProfilePass

_LOAD = ("id", "kind", "input_len", "output_len", "num_prompts")
_STEPS = ("concurrency", "max_steps", "delay_steps")
_KEYS: dict[str, tuple[str, ...]] = {
    "torch": (*_LOAD, *_STEPS, "teacher", "with_stack", "record_shapes", "with_memory", "detailed_steps"),
    "nsys": (*_LOAD, *_STEPS),
    "ncu": (*_LOAD, "of", "kernels", "launches"),
}
_KINDS = tuple(_KEYS)


def read_profiles(top: Table, max_model_len: Any) -> tuple[ProfilePass, ...]:
    """All passes, in the order of the file."""
    found: list[ProfilePass] = []
    for index, node in enumerate(top.sequence("profile")):
        where = f"profile[{index}]"
        loose = Table(top.source, node, where, {key for keys in _KEYS.values() for key in keys})
        kind = cast("ProfileKind", loose.choice("kind", "torch", _KINDS))
        for key in loose.nodes:
            if key not in _KEYS[kind]:
                loose.complain(key, f"is not for kind {kind}")
        source = _source(loose, found) if kind == "ncu" else None
        one = _pass(loose, kind, index, source, node.start_mark.line + 1)
        if any(one.id == other.id for other in found):
            loose.complain("id", f"{one.id!r} is taken by another profile")
        if isinstance(max_model_len, int) and one.input_len + one.output_len > max_model_len:
            loose.complain(
                "input_len", f"+ output_len is {one.input_len + one.output_len}, over max_model_len {max_model_len}"
            )
        found.append(one)
    return tuple(found)


def _pass(table: Table, kind: ProfileKind, index: int, source: ProfilePass | None, line: int) -> ProfilePass:
    teacher = table.flag("teacher", False)
    # Which kernel computes a product follows from its size: those of a pass are met again by a batch like its own.
    like = source or ProfilePass("")
    return ProfilePass(
        id=checked_name(table, "id", f"{'teacher' if teacher else kind}-{index}"),
        kind=kind,
        teacher=teacher,
        input_len=table.integer("input_len", like.input_len),
        output_len=table.integer("output_len", like.output_len),
        concurrency=table.integer("concurrency", like.concurrency),
        num_prompts=table.integer("num_prompts", like.concurrency if source else like.num_prompts),
        # With stacks a step makes a hundred thousand events; a few show all there is to learn.
        max_steps=table.integer("max_steps", 8 if teacher else 32),
        delay_steps=table.integer("delay_steps", 0, at_least=0),
        with_stack=table.flag("with_stack", teacher),
        record_shapes=table.flag("record_shapes", True),
        with_memory=table.flag("with_memory", False),
        detailed_steps=table.flag("detailed_steps", False),
        of=source.id if source else "",
        kernels=table.integer("kernels", 8),
        launches=table.integer("launches", 2),
        line=line,
    )


def _source(table: Table, before: list[ProfilePass]) -> ProfilePass:
    """The torch pass whose kernels an ncu pass looks at: the one it names, else the last one before it."""
    torch = {one.id: one for one in before if one.kind == "torch"}
    if not torch:
        table.complain("kind", "ncu needs a torch pass before it, which tells the kernels that take longest")
    wanted = table.text("of")
    if wanted is not None and wanted not in torch:
        table.complain("of", f"is {wanted!r}; the torch passes before it are {', '.join(torch)}")
    measured = [one for one in torch.values() if not one.teacher]
    return torch[wanted] if wanted is not None else (measured or list(torch.values()))[-1]
