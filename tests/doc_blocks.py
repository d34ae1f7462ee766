"""The blocks of the documentation: what stands in fences of its pages, and how it is marked.

A comment right before a block says what a test may not do with it, and why. Two of them are known:

    <!-- not run: REASON -->         the block, or with a text in quotes each command that holds it, is parsed only
    <!-- slow "TEXT": REASON -->     it is parsed; the slow tests run it

`<!-- exit 2: REASON -->` says which status the last command of the block ends with.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LANGUAGES = ("sh", "console", "python", "yaml", "toml", "json", "text", "")
MARK = re.compile(r'^<!-- (not run|slow|exit \d+)(?: "([^"]+)")?: (.+) -->$')
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
# What ends a command for a shell; what follows is no argument.
STOPS = re.compile(r"^(?:[|&;<>]+|\d?>+.*|\|\|)$")


@dataclass(frozen=True)
class Mark:
    """What a comment says of a block: `word`, the `text` of the commands it is about (all where empty), and why."""

    word: str
    text: str
    reason: str


@dataclass(frozen=True)
class Block:
    """One fenced block: where it stands, its language, its lines, and what is said of it."""

    page: Path
    line: int
    language: str
    text: str
    marks: tuple[Mark, ...] = ()

    @property
    def where(self) -> str:
        """`docs/compare.md:12`."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def marked(self, command: str, word: str) -> bool:
        """Whether a comment says `word` of this command."""
        return any(mark.word == word and mark.text in command for mark in self.marks)

    @property
    def status(self) -> int:
        """The status the block ends with."""
        return next((int(mark.word.split()[1]) for mark in self.marks if mark.word.startswith("exit")), 0)


def pages() -> list[Path]:
    """Every page that is written by hand."""
    inside = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "site" not in path.parts]
    return [ROOT / "README.md", *inside, ROOT / "data" / "README.md", ROOT / "benchmarks" / "README.md"]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    marks: list[Mark] = []
    inside: list[str] | None = None
    fence, language, began = "", "", 0
    for number, line in enumerate(page.read_text().splitlines(), 1):
        opening = re.match(r"^\s*(`{3,}|~{3,})\s*(\S*)", line)
        if inside is not None:
            if opening and opening[1] == fence and not opening[2]:
                found.append(Block(page, began, language, "\n".join(inside) + "\n", tuple(marks)))
                inside, marks = None, []
            else:
                inside.append(line)
        elif opening:
            fence, language, began, inside = opening[1], opening[2], number, []
        elif match := MARK.match(line.strip()):
            marks.append(Mark(match[1], match[2] or "", match[3]))
        elif line.strip():
            assert not marks, f"{page}:{number}: a comment about a block, and no block after it"
    assert inside is None, f"{page}: a block that does not end"
    return found


def spans(page: Path) -> Iterator[tuple[int, str]]:
    """Code in running text: line number and text."""
    inside = ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = re.match(r"^\s*(`{3,}|~{3,})", line)
        if fence and inside in ("", fence[1]):
            inside = "" if inside else fence[1]
        elif not inside:
            for match in SPAN.finditer(line):
                yield number, match[1]


def logical_lines(text: str) -> list[str]:
    """The lines of a shell block, continued ones joined, without comments and empty ones."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.strip().startswith("#")]


def commands(text: str, program: str = "perflab") -> list[list[str]]:
    """The arguments of every command of `program` in a shell block, wherever in its lines it stands."""
    found = []
    for line in logical_lines(text):
        start = re.search(rf"(?:^|\s|/)(?={program}\s|{program}$)", line)
        if start is None or "#" in line[: start.start()]:
            continue
        tokens = shlex.split(line[start.end() :], comments=True)
        stop = next((n for n, token in enumerate(tokens) if STOPS.match(token)), len(tokens))
        found.append([token.rstrip(";") for token in tokens[1:stop]])
    return found


def is_plain(text: str) -> bool:
    """Whether a block has nothing but commands of perflab, at most sent into a file: then no shell is needed."""
    lines = [line.partition(" #")[0] for line in logical_lines(text)]
    return all(line.startswith("perflab ") for line in lines) and not re.search(r"[$|;&`]|<", "\n".join(lines))
