"""`--set engine.args.enforce_eager=false`: an experiment with one value changed, for the other side of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from perflab.errors import InputError
from perflab.experiment.nodes import Source

_MAP = "tag:yaml.org,2002:map"


def changed(source: Source, changes: Sequence[str]) -> Source:
    """The file with values set, as text of its own; the file itself where nothing is changed.

    Parameters
    ----------
    changes
        Each `KEY=VALUE`: a dotted place (items of lists by number, from 0) and a value as YAML writes it. What is not
        there yet is added. Names of engine arguments may have `-` for `_`.

    Raises
    ------
    InputError
        When a change is not of that form, its value is not YAML, or its place leads through a value that is no mapping.
    """
    if not changes:
        return source
    root = source.root()
    for change in changes:
        place, equals, text = change.partition("=")
        keys = place.strip().split(".")
        if not equals or not all(keys):
            raise InputError(f"--set {change}: write it as KEY=VALUE, for example engine.args.max_num_seqs=64")
        _put(root, keys, _value(change, text), change)
    said = "".join(f"# --set {change}\n" for change in changes)
    return Source(source.path, said + yaml.serialize(root, Dumper=yaml.SafeDumper))


def _value(change: str, text: str) -> yaml.Node:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise InputError(f"--set {change}: the value is not YAML: {problem}") from error
    if node is None:
        raise InputError(f"--set {change}: there is no value")
    return node


def _put(node: yaml.Node, keys: list[str], value: yaml.Node, change: str) -> None:
    *parents, last = keys
    for done, key in enumerate(parents):
        # A dotted name is one key of the engine's arguments, `compilation_config.mode`.
        rest = ".".join(keys[done:])
        if isinstance(node, yaml.MappingNode) and _index(node, rest) is not None:
            return _set(node, rest, value)
        found = _find(node, key, change)
        if found is None:
            found = yaml.MappingNode(_MAP, [])
            _add(node, key, found)
        node = found
    if isinstance(node, yaml.SequenceNode):
        _find(node, last, change)
        node.value[int(last)] = value
    elif isinstance(node, yaml.MappingNode):
        _set(node, last, value)
    else:
        raise InputError(f"--set {change}: {'.'.join(parents)} is a single value and has no {last}")
    return None


def _find(node: yaml.Node, key: str, change: str) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode):
        if not key.isdigit() or int(key) >= len(node.value):
            raise InputError(f"--set {change}: {key!r} is no item of a list of {len(node.value)}; the first is 0")
        item: yaml.Node = node.value[int(key)]
        return item
    if not isinstance(node, yaml.MappingNode):
        raise InputError(f"--set {change}: {key!r} stands below a single value")
    at = _index(node, key)
    if at is None:
        return None
    found: yaml.Node = node.value[at][1]
    # `args:` with nothing below it is a mapping that is yet to be filled.
    is_empty = isinstance(found, yaml.ScalarNode) and found.tag == "tag:yaml.org,2002:null"
    if is_empty:
        found = yaml.MappingNode(_MAP, [])
        node.value[at] = (node.value[at][0], found)
    return found


def _index(node: yaml.MappingNode, key: str) -> int | None:
    plain = key.replace("-", "_")
    places = [i for i, (name, _) in enumerate(node.value) if str(name.value).replace("-", "_") == plain]
    return places[0] if places else None


def _set(node: yaml.MappingNode, key: str, value: yaml.Node) -> None:
    at = _index(node, key)
    if at is None:
        _add(node, key, value)
    else:
        node.value[at] = (node.value[at][0], value)


def _add(node: yaml.Node, key: str, value: yaml.Node) -> None:
    node.value.append((yaml.ScalarNode("tag:yaml.org,2002:str", key), value))
