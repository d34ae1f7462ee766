"""Every sentence the code asks for is in the catalogue, with the fields it is given."""

import ast
import string
from pathlib import Path

from perflab.messages import catalogue


def calls(root: Path) -> list[tuple[str, int, str, set[str], bool]]:
    """(file, line, sentence name, keyword fields, has **fields) of each `say("literal", ...)` in the package."""
    found = []
    for file in sorted((root / "perflab").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", "") == "say"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                fields = {k.arg for k in node.keywords if k.arg and k.arg != "language"}
                found.append(
                    (
                        file.name,
                        node.lineno,
                        node.args[0].value,
                        fields,
                        any(k.arg is None for k in node.keywords),
                    )
                )
    return found


def test_every_sentence_asked_for_exists_and_gets_its_fields(root: Path) -> None:
    sentences = catalogue()
    for file, line, name, fields, open_ended in calls(root):
        assert name in sentences, f"{file}:{line} asks for {name}"
        wanted = {part[1].split(".")[0].split("[")[0] for part in string.Formatter().parse(sentences[name]) if part[1]}
        assert open_ended or fields == wanted, f"{file}:{line}: {name} wants {wanted}, gets {fields}"


def test_the_catalogue_is_flat_text() -> None:
    assert all(isinstance(text, str) and text.strip() for text in catalogue().values())
