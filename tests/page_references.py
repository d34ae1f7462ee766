"""What an HTML page would reach for outside itself."""

import re
from html.parser import HTMLParser

_REFERRING = {"src", "href", "xlink:href", "srcset", "action", "formaction", "poster", "background", "data", "cite"}
_CSS_REFERENCE = re.compile(r"@import|url\(\s*['\"]?(?!#|data:|['\"])", re.IGNORECASE)


def external_references(text: str) -> list[str]:
    """Whatever in an HTML text would reach for something outside it, or run a script: none in a report.

    Links within the page (`#...`) and `data:` are inside it.
    """
    parser = _References()
    parser.feed(text)
    return parser.found


class _References(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        if tag in ("script", "iframe", "object", "embed", "base"):
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            value = (value or "").strip()
            if name.startswith("on"):
                self.found.append(f"<{tag} {name}>")
            elif name in _REFERRING and value and not value.startswith(("#", "data:")):
                self.found.append(f'<{tag} {name}="{value[:80]}">')
            elif name == "style" and _CSS_REFERENCE.search(value):
                self.found.append(f'<{tag} style="{value[:80]}">')

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._in_style = False

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style and _CSS_REFERENCE.search(data):
            self.found.append("a style sheet that loads something")
