"""Which versions of vLLM have an argument of `vllm serve`, and what has taken its place, from `engine_args.toml`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from perflab.knowledge.toml import shipped_toml
from perflab.knowledge.versions import release


@dataclass(frozen=True)
class Elsewhere:
    """An argument that other versions have: `last` seen in one and replaced by `use`, or new `since` one."""

    last: str | None = None
    since: str | None = None
    use: str | None = None


def elsewhere(name: str) -> Elsewhere | None:
    """What is known of an argument that the installed version lacks; None where no version listed has it."""
    table = _table()
    if found := table["gone"].get(name):
        return Elsewhere(last=found["last"], use=found.get("use"))
    since = next((version for version, names in table["since"].items() if name in names), None)
    return None if since is None else Elsewhere(since=since)


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    return shipped_toml("engine_args.toml")


def flag(name: str, version: str | None = None, value: Any = None) -> str | None:
    """An argument as `vllm serve` of that version spells it, or what does the same there; None where nothing does.

    Parameters
    ----------
    name
        The field of EngineArgs, as `kv_cache_dtype`.
    version
        The run's; the newest listed unless known.
    value
        Goes behind the argument. False switches it off (`--no-...`), None and True name it alone.

    Notes
    -----
    Between two versions listed the later one's arguments are only likely; then the version that surely has it is said.
    What an argument was replaced by comes from `engine_args.toml`; it may take other values, so `value` is left out.
    """
    table = _table()
    ours = version or table["versions"][-1]
    if _listed(name) is None:
        raise KeyError(f"no version listed has an argument {name!r}")
    if _has(name, ours):
        return _spelled(name, value)
    gone, first = _listed(name) or (None, None)
    if gone is not None and release(ours) > release(gone):
        use = table["gone"][name].get("use")
        return _replacement(use, ours) if use else None
    if first is None:
        return None
    older = next((o for o, entry in table["gone"].items() if entry.get("use") == name and entry.get("renamed")), None)
    if older is not None and _has(older, ours):
        return _spelled(older, value)
    before = max(known for known in map(release, table["versions"]) if known < release(first))
    return f"{_spelled(name, value)} (sure to be there from vLLM {first})" if release(ours) > before else None


def as_version_has_it(text: str, version: str | None) -> str:
    """A sentence in which arguments in code marks (`--name value`) read as that version of vLLM names them.

    Those it lacks are replaced by what does the same there, or said not to be there. Arguments that no version of
    `vllm serve` listed has, as a client's, stay, and so does everything where the version is not known.
    """
    return text if version is None else _ARGUMENT.sub(lambda found: _mended(found, version), text)


_ARGUMENT = re.compile(r"`--(?P<no>no-)?(?P<name>[a-z0-9][a-z0-9-]*)(?: (?P<value>[^`]+))?`")


def _mended(found: re.Match[str], version: str) -> str:
    name = found["name"].replace("-", "_")
    if _listed(name) is None or _has(name, version):
        return found[0]
    said = flag(name, version, False if found["no"] else found["value"])
    return f"{found[0]} (vLLM {version} has no such argument)" if said is None else f"`{said}`"


def _listed(name: str) -> tuple[str | None, str | None] | None:
    """The last version listed that has an argument and the first, None where all later or earlier ones have it."""
    table = _table()
    gone = table["gone"].get(name, {}).get("last")
    first = next((after for after, names in table["since"].items() if name in names), None)
    return (gone, first) if gone or first or name in table["first"] else None


def _has(name: str, version: str) -> bool:
    """Whether a version surely has an argument."""
    found = _listed(name)
    if found is None:
        return False
    gone, first = found
    return (gone is None or release(version) <= release(gone)) and (first is None or release(version) >= release(first))


def _spelled(name: str, value: Any) -> str:
    option = name.replace("_", "-")
    if value is False:
        return f"--no-{option}"
    if value is None or value is True:
        return f"--{option}"
    return f"--{option} {value}"


def _replacement(use: str, version: str) -> str | None:
    """`cudagraph_capture_sizes` -> `--cudagraph-capture-sizes`, if the version has it; words around it stay."""
    names = [name for name in re.findall(r"[a-z0-9_]+", use) if _listed(name)]
    if not all(_has(name, version) for name in names):
        return None
    for name in names:
        use = re.sub(rf"\b{name}\b", _spelled(name, None), use)
    return use
