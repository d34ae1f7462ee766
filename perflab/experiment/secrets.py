"""Keeps secrets out of what is written: by the name of a variable or argument, and by the shape of a URL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HIDDEN = "***"

_WORDS = frozenset({
    "token", "key", "apikey", "secret", "password", "passwd", "pass", "pat", "credential", "credentials",
    "auth", "authorization", "cookie",
})  # fmt: skip
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)[^/\s@'\"]+@")
_BEARER = re.compile(r"(?i)\b(authorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic)?\s*|bearer\s+)[\w.~+/=-]{6,}")
# Shorter values are ordinary words and numbers; replacing them everywhere would garble a log.
_LONG_ENOUGH = 8


def is_secret_name(name: str) -> bool:
    """Whether a variable, argument or key is named like a secret: `HF_TOKEN`, `--api-key`; not `max_tokens`."""
    return any(word in _WORDS for word in re.split(r"[^a-z0-9]+", name.lower()))


def redact_text(text: str, values: Iterable[str] = ()) -> str:
    """`text` without the given secret values, credentials in URLs, and authorization headers."""
    for value in sorted(set(values), key=len, reverse=True):
        if len(value) >= _LONG_ENOUGH:
            text = text.replace(value, HIDDEN)
    text = _URL.sub(rf"\g<scheme>{HIDDEN}@", text)
    return _BEARER.sub(rf"\g<1>{HIDDEN}", text)


def redact_data(value: Any, values: Iterable[str] = ()) -> Any:
    """Plain data with its text cleaned, and what stands under a secret name replaced."""
    kept = tuple(values)
    if isinstance(value, str):
        return redact_text(value, kept)
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if inner and isinstance(inner, str) and is_secret_name(str(key)) else redact_data(inner, kept)
            for key, inner in value.items()
        }
    return [redact_data(item, kept) for item in value] if isinstance(value, list | tuple) else value


def redact_env(env: Mapping[str, str], values: Iterable[str] = ()) -> dict[str, str]:
    """`env` with the values of secret names replaced, and the others cleaned as text."""
    kept = tuple(values)
    return {name: HIDDEN if is_secret_name(name) and value else redact_text(value, kept) for name, value in env.items()}


def redact_argv(argv: Sequence[str], values: Iterable[str] = ()) -> list[str]:
    """An argument list with what follows, or is joined to, a secret option replaced."""
    kept = tuple(values)
    shown: list[str] = []
    hide_next = False
    for argument in argv:
        name, joined, _ = argument.partition("=")
        option = argument.startswith("--")
        if hide_next and not option:
            shown.append(HIDDEN)
            continue
        hide_next = option and not joined and is_secret_name(name)
        hidden = option and bool(joined) and is_secret_name(name)
        shown.append(f"{name}={HIDDEN}" if hidden else redact_text(argument, kept))
    return shown


def secret_values(env: Mapping[str, str]) -> tuple[str, ...]:
    """The values of the variables that are named like secrets."""
    return tuple(value for name, value in env.items() if is_secret_name(name) and len(value) >= _LONG_ENOUGH)
