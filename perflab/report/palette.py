"""The colours of a page by what they are for, in light and in dark, and the CSS that lets a reader choose.

Interface colours of figures are among them (`perflab.plots.style.INTERFACE`): a figure follows the page it stands in.
Contrasts are tested (WCAG 2.2 AA): 4.5 for text, 3 for what carries meaning without words.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perflab.plots import style

LIGHT: Mapping[str, str] = MappingProxyType({
    **style.INTERFACE, "card": "#f6f8fa", "edge": "#d5dae0", "link": "#0b5cad", "focus": "#0b5cad",
    "warn": "#7a5000", "warn-bg": "#fff3d1", "warn-edge": "#b97a00", "bad-bg": "#fde8e6", "bad-edge": "#b3261e",
    "good": "#13663d", "good-bg": "#e2f5ea", "good-edge": "#1f8a55", "info": "#0b4f8a", "info-bg": "#e5f0fa",
    "info-edge": "#2f7fc4",
})  # fmt: skip
"""On a white page; by the names of CSS variables."""

DARK: Mapping[str, str] = MappingProxyType({
    "paper": "#15181c", "ink": "#e4e7eb", "muted": "#a3adb8", "line": "#74808c", "grid": "#2b3138", "idle": "#3c454f",
    "other": "#aab4bf", "alert": "#ff8a80", "card": "#1c2127", "edge": "#343c45", "link": "#6cb2ff", "focus": "#8cc4ff",
    "warn": "#f2c464", "warn-bg": "#3a2f12", "warn-edge": "#d9a23a", "bad-bg": "#44201d", "bad-edge": "#ff8a80",
    "good": "#7fd6a3", "good-bg": "#163423", "good-edge": "#4fb37f", "info": "#8cc4ff", "info-bg": "#15304a",
    "info-edge": "#5aa2e0",
})  # fmt: skip
"""On a dark page."""

PRINT: Mapping[str, str] = MappingProxyType({**LIGHT, "ink": "#000000", "muted": "#3d454e", "link": "#000000"})
"""On paper: light, and darker text, since printers thin it."""


def colours_css() -> str:
    """The variables: light, dark where the reader's system asks for it, either where the page's own switch says so.

    The switch is two radio buttons and `:has`, no script; a browser that does not know `:has` follows the system.
    """
    return "\n".join((
        _rule(":root", LIGHT, "light dark"),
        "@media (prefers-color-scheme: dark) {" + _rule(":root", DARK, "light dark") + "}",
        "@media screen {" + _rule(":root:has(#theme-light:checked)", LIGHT, "light") + "}",
        "@media screen {" + _rule(":root:has(#theme-dark:checked)", DARK, "dark") + "}",
        "@media print {" + _rule(":root", PRINT, "light") + "}",
    ))  # fmt: skip


def _rule(selector: str, colours: Mapping[str, str], scheme: str) -> str:
    told = "; ".join(f"--{name}: {colour}" for name, colour in colours.items())
    return f"{selector} {{ {told}; color-scheme: {scheme}; }}"
