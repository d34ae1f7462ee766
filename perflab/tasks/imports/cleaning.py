"""Secrets in what others recorded: a log shows the API key it was started with, a shell's output a token."""

from __future__ import annotations

import re

from perflab.experiment.secrets import HIDDEN

_NAMES = (
    r"(?:api[-_]?keys?|(?:hf|hugging_?face(?:_hub)?|auth|access|bearer|github)[-_]token|password|passwd|"
    r"(?:client[-_]|aws[-_])?secret(?:[-_](?:access[-_])?key)?)"
)
# 'api_key': ['x'], api_key="x"
_QUOTED = re.compile(rf"(?i)(?<![\w-]){_NAMES}['\"]?\s*[:=]\s*\[?\s*(?P<quote>['\"])(?P<value>[^'\"\n]+)(?P=quote)")
# --api-key x, HF_TOKEN=x
_BARE = re.compile(rf"(?i)(?:--|(?<![\w-])){_NAMES}\s*=\s*(?P<value>[^\s'\"\[,;]+)")
_OPTION = re.compile(rf"(?i)--{_NAMES}[ \t]+(?P<value>[^\s'\"\[-][^\s'\"]*)")
# Tokens that are known by their beginning.
_SHAPES = re.compile(r"\b(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|nvapi-|AKIA)[A-Za-z0-9_-]{16,}")
_BEARER = re.compile(r"(?i)\b(?:bearer|basic)\s+(?P<value>[\w.~+/=-]{6,})")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?P<value>[^/\s@'\"]+)@")
_NOTHING = frozenset(("none", "null", "true", "false", "''", '""', "...", HIDDEN.lower(), "redacted"))


def cleaned(text: str) -> str:
    """`text` without credentials in URLs, authorization headers, named secrets and tokens of known shape."""
    for pattern in (_QUOTED, _OPTION, _BARE, _BEARER, _URL):
        text = pattern.sub(_hide, text)
    return _SHAPES.sub(HIDDEN, text)


def _hide(match: re.Match[str]) -> str:
    value = match["value"]
    # A word of prose (bearer authorization), or what a help text calls a value (API_KEY), is no secret.
    is_word = match.re is _BEARER and value.isalpha() and value.islower()
    if is_word or value.lower() in _NOTHING or re.fullmatch(r"[A-Z_]+|\$.*|<.*>", value):
        return match[0]
    start, end = (at - match.start() for at in match.span("value"))
    return match[0][:start] + HIDDEN + match[0][end:]
