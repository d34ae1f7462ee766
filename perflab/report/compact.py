"""Drawings made small: a page has dozens of figures, and most of their bytes are outlines of letters."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_GLYPH = re.compile(r'<path id="([^"]+)" d="([^"]*)" transform="(scale\([^"]*\))"\s*/>')
_BLANK = re.compile(r'<path id="([^"]+)" transform="scale\([^"]*\)"\s*/>')
_USE = re.compile(r'<use xlink:href="#([^"]+)"(?: transform="translate\(([-\d.]+) 0\)")?\s*/>')
_OUTLINE = re.compile(r'(?<= d=")[^"]*(?=")')
_PLACE = re.compile(r'(?<=translate\()[^)]*(?=\))|(?<= (?:x|y)=")[^"]*(?=")')
_LONG = re.compile(r"-?\d+\.\d{3,}(?![\de])")
_SPACE = re.compile(r"\s*([A-Za-z])\s*")
_ID = re.compile(r'\sid="([^"]+)"')
_KEPT = re.compile(r"text_\d+$")
_EMPTY = re.compile(r"<g>\s*</g>|<defs>\s*</defs>")
_BETWEEN = re.compile(r">\s+<")


@dataclass
class Glyphs:
    """The outlines of letters that figures of one page share, each once."""

    _ids: dict[str, str] = field(default_factory=dict)

    def name(self, outline: str, scale: str) -> str:
        """The id of an outline, a new one for a new outline."""
        drawing = f'd="{_short_outline(outline)}" transform="{scale}"'
        return self._ids.setdefault(drawing, f"y{len(self._ids)}")

    @property
    def defs(self) -> str:
        """All outlines; stands once on the page, hidden. Empty where no figure has text."""
        if not self._ids:
            return ""
        paths = "".join(f'<path id="{name}" {drawing}/>' for drawing, name in self._ids.items())
        return f'<svg class="glyphs" aria-hidden="true"><defs>{paths}</defs></svg>'


def compact(drawing: str, glyphs: Glyphs) -> str:
    """The same drawing in fewer bytes: coordinates in hundredths of a point, letters from `glyphs`, no unused ids."""
    text = _COMMENT.sub("", drawing)
    names: dict[str, str] = {}

    def collect(match: re.Match[str]) -> str:
        names[match.group(1)] = glyphs.name(match.group(2), match.group(3))
        return ""

    def use(match: re.Match[str]) -> str:
        target, x = match.groups()
        if target in blank:
            return ""
        at = f' x="{_rounded(x, 1)}"' if x else ""
        return f'<use href="#{names.get(target, target)}"{at}/>'

    text = _GLYPH.sub(collect, text)
    blank = set(_BLANK.findall(text))
    text = _BLANK.sub("", text)
    text = _USE.sub(use, text)
    text = _OUTLINE.sub(lambda m: _short_outline(m.group()), text)
    text = _PLACE.sub(lambda m: _LONG.sub(lambda n: _rounded(n.group()), m.group()), text)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    text = _ID.sub(lambda m: m.group() if m.group(1) in used or _KEPT.search(m.group(1)) else "", text)
    before = ""
    while before != text:
        before, text = text, _EMPTY.sub("", text)
    return _BETWEEN.sub("><", text)


def _short_outline(outline: str) -> str:
    return _SPACE.sub(r"\1", _LONG.sub(lambda n: _rounded(n.group()), " ".join(outline.split()))).strip()


def _rounded(number: str, digits: int = 2) -> str:
    return f"{float(number):.{digits}f}".rstrip("0").rstrip(".") if "." in number else number
