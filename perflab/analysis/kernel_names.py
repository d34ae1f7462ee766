"""Kernel names short enough for a figure and still distinct.

A C++ kernel name can run to thousands of characters. What a reader needs is the function, and for a wrapper
(`cutlass::device_kernel<...>`, ATen's elementwise kernels) what it wraps, its tile shape and its number format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ELLIPSIS = "…"

_RETURN_TYPE = re.compile(r"^(?:void|(?:unsigned )?(?:int|long|float|bool))\s+")
_TUPLE = re.compile(r"cute::tuple<((?:\s*cute::C<\d+>\s*,?)+)\s*>")
_TENSILE = re.compile(r"(Cijk_\w+?_Bl?j?l?k)_(\w+?)_.*?(MT\d+x\d+x\d+)")
_FORMATS = (
    ("float_e4m3", "fp8"), ("float_e5m2", "fp8"), ("integer_subbyte<4", "int4"), ("uint4", "int4"),
    ("<signed char", "int8"), ("bfloat16", "bf16"), ("bf16", "bf16"), ("half", "fp16"), ("Half", "fp16"),
    ("int8", "int8"), ("float", "fp32"),
)  # fmt: skip
_WRAPPERS = {"device_kernel", "Kernel", "Kernel2", "enable_sm80_to_sm89", "enable_sm90", "enable_sm90_or_later"}
_MANGLED_WRAPPERS = {"kentry", "device_kernel", "Kernel", "Kernel2"}
_GENERIC_GEMM = {"GemmUniversal", "GemmUniversalAdapter"}
_PLUMBING = re.compile(
    r"^(?:(?:cute|std|c10|cutlass::arch)::|cutlass::(?:integer_subbyte|bfloat16_t|half_t|float_e\w+)|(?:int|float|long|char|bool)\b)"
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*")
_ATEN_BODY = re.compile(r"\b(\w+(?:_cuda|_impl|Functor\w*|Ops)|[A-Z]\w+(?:Functor|Ops|Assign))\b")
_ATEN_NOISE = {"gpu_kernel_impl", "gpu_kernel_impl_nocast", "gpu_index_kernel", "ReduceOp", "TensorIteratorBase"}


def short_kernel_name(name: str, limit: int = 48) -> str:
    """A kernel's name without return type, arguments and most template arguments, at most `limit` long.

    Names without C++ in them (`nvjet_...`, `triton_...`, `aten::mm`) stay as they are unless too long; then
    their middle is left out, since the end tells variants apart.
    """
    text = " ".join(_demangled(name).split())
    if not text:
        return "(no name)"
    if tensile := _TENSILE.match(text):
        text = " ".join(tensile.groups())
    elif ("<" in text or "(" in text) and not text.startswith(("Memcpy", "Memset")):
        text = _of_cxx(text)
    return elide(text, limit)


def short_kernel_names(names: Iterable[str], limit: int = 48) -> dict[str, str]:
    """Short forms of several names, distinct from one another: `#2`, `#3` follow where nothing else differs."""
    short: dict[str, str] = {}
    taken: set[str] = set()
    for name in dict.fromkeys(names):
        base = candidate = short_kernel_name(name, limit)
        count = 1
        while candidate in taken:
            count += 1
            candidate = f"{elide(base, limit - len(str(count)) - 2)} #{count}"
        taken.add(candidate)
        short[name] = candidate
    return short


def elide(text: str, limit: int) -> str:
    """`text` with its middle left out if it is longer than `limit`; two thirds of what stays are its beginning."""
    if len(text) <= limit:
        return text
    tail = max((limit - 1) // 3, 1)
    return f"{text[: limit - 1 - tail]}{ELLIPSIS}{text[-tail:]}"


def _of_cxx(text: str) -> str:
    text = text.replace("(anonymous namespace)::", "")
    path, arguments = _split(_without_return_type(text))
    function = path.split("::")[-1]
    if function in _WRAPPERS:
        return _wrapped(arguments) or path
    if path.startswith("at::native"):
        return _aten(function, arguments)
    return path or text


def _without_return_type(text: str) -> str:
    """Drop `void`, and a dependent return type like `std::enable_if<...>::type`."""
    text = _RETURN_TYPE.sub("", text)
    # Its condition may hold comparison signs, so that counting brackets does not find its end; `::type ` does.
    return text.split("::type ", 1)[-1] if text.startswith("std::enable_if") else text


def _split(text: str) -> tuple[str, str]:
    """The function's qualified name, and its template arguments as text."""
    for position, char in enumerate(text):
        if char == "(":
            return text[:position].strip(), ""
        if char == "<":
            depth = 0
            for end in range(position, len(text)):
                depth += (text[end] == "<") - (text[end] == ">" and text[end - 1] != "-")
                if depth == 0:
                    return text[:position].strip(), text[position + 1 : end]
            return text[:position].strip(), text[position + 1 :]
    return text.strip(), ""


def _wrapped(arguments: str) -> str:
    """What a wrapper's template arguments hold: its main part, tile shape and number format."""
    found = [m.group() for m in _IDENTIFIER.finditer(arguments) if not _PLUMBING.match(m.group())]
    named = [name for name in found if name.split("::")[-1] not in _WRAPPERS]
    if not named:
        return ""
    main = named[0]
    if main.split("::")[-1] in _GENERIC_GEMM:
        # A generic GEMM is told by the library that fills it in, if it is not cutlass itself.
        main = next((name for name in named if "::" in name and not name.startswith("cutlass")), "cutlass GEMM")
    return " ".join(part for part in (main, _tile(arguments), _format(arguments)) if part)


def _tile(arguments: str) -> str:
    shapes = [[int(n) for n in re.findall(r"C<(\d+)>", m.group(1))] for m in _TUPLE.finditer(arguments)]
    tiles = [shape for shape in shapes if len(shape) in (2, 3) and max(shape) > 2]
    return "x".join(map(str, tiles[0])) if tiles else ""


def _format(arguments: str) -> str:
    found = [(arguments.find(needle), rank) for rank, (needle, _) in enumerate(_FORMATS) if needle in arguments]
    return _FORMATS[min(found)[1]][1] if found else ""


def _aten(function: str, arguments: str) -> str:
    bodies = [m.group(1) for m in _ATEN_BODY.finditer(arguments) if m.group(1) not in _ATEN_NOISE]
    short = re.sub(r"_kernel$", "", function)
    return f"at::{short} ({re.sub(r'_kernel(_cuda|_impl)?$', '', bodies[0])})" if bodies else f"at::{short}"


def _demangled(name: str) -> str:
    """The qualified name in an Itanium-mangled one; anything this does not understand stays as it is."""
    match = re.match(r"_Z(N?)", name)
    if not match:
        return name
    parts, rest = [], name[match.end() :]
    while number := re.match(r"\d+", rest):
        length, start = int(number.group()), number.end()
        if start + length > len(rest):
            return name
        parts.append(rest[start : start + length])
        rest = rest[start + length :]
        if not match.group(1):
            break
    parts = [part for part in parts if not part.startswith("_GLOBAL__N")]
    if parts and parts[-1] in _MANGLED_WRAPPERS and (inner := _first_long_identifier(rest)):
        parts[-1] = inner
    return "::".join(parts) or name


def _first_long_identifier(mangled: str) -> str:
    """The first of the length-prefixed identifiers that is a name, not a parameter's letter."""
    for match in re.finditer(r"\d+", mangled):
        identifier = mangled[match.end() : match.end() + int(match.group())]
        if len(identifier) > 5 and len(identifier) == int(match.group()) and identifier.isidentifier():
            return identifier
    return ""
