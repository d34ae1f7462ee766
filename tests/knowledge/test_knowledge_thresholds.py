"""Every figure has its reason, users may set others, and every sentence of checks and findings is said somewhere."""

import re
import tomllib
from pathlib import Path

import pytest

from perflab.errors import InputError
from perflab.knowledge.thresholds import load_thresholds, own_thresholds, threshold
from perflab.messages import catalogue


def _analysis(root: Path, *more: str) -> str:
    folders = ("analysis", *more)
    return "\n".join(path.read_text() for name in folders for path in (root / "perflab" / name).rglob("*.py"))


def test_every_threshold_says_why_and_is_used(root: Path) -> None:
    table = tomllib.loads((root / "perflab" / "knowledge" / "thresholds.toml").read_text())
    code = _analysis(root, "tasks")
    for name, entry in table.items():
        assert len(entry.pop("why")) > 30, name
        assert all(isinstance(level, str) for level in entry.pop("users", [])), name
        assert all(isinstance(value, int | float) and value >= 0 for value in entry.values()), name
        assert f'"{name}"' in code, f"{name} is used nowhere"


def test_perflabs_own_figures_may_all_be_given_by_a_user(tmp_path: Path) -> None:
    own = own_thresholds()
    lines = [
        f"[{name}]\n" + "".join(f"{k} = {v!r}\n" for k, v in levels.items())
        for name, levels in own.values.items()
        if levels
    ]
    file = tmp_path / "all.toml"
    file.write_text("\n".join(lines))
    assert load_thresholds(file).values == own.values


def test_a_missing_threshold_is_a_bug() -> None:
    assert threshold("other_share", "warn") == 0.03
    with pytest.raises(KeyError):
        threshold("other_share", "maybe")


def test_a_users_figures_come_first_and_the_rest_stays(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[exposed_communication]\nwarning = 0.2\n\n[attention_share]\nwarning = 0.6\n")
    mine = load_thresholds(file)
    assert mine.limit("exposed_communication", "warning") == 0.2
    assert mine.limit("exposed_communication", "critical") == 0.25
    assert mine.maybe("attention_share", "warning") == 0.6
    assert mine.maybe("attention_share", "info") is None
    assert mine.changed == {"exposed_communication.warning": 0.10, "attention_share.warning": None}
    assert own_thresholds().limit("exposed_communication", "warning") == 0.10
    assert own_thresholds().maybe("attention_share", "warning") is None


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("[copies\n", 1, "not valid TOML"),
        ("", None, "holds no thresholds"),
        ("# mine\n[copys]\nwarning = 0.1\n", 2, "no threshold is called 'copys'"),
        ("[copies]\n", 1, "sets nothing"),
        ("[copies]\nwarning = 0.2\nfail = 0.3\n", 3, "no level 'fail'; it has info, warning"),
        ("[copies]\nwarning = 60\n", 2, "warning is 60; it is a number from 0 to 1"),
        ("[copies]\nwarning = '0.2'\n", 2, "it is a number"),
        ("[copies]\nwarning = true\n", 2, "it is a number"),
        ("[copies]\nwarning = nan\n", 2, "it is a number"),
        ("[exposed_communication]\nwarning = 0.3\n", 1, "warning is 0.3, above critical (0.25); set both"),
        ("[samples]\nmost = 3\n", 2, "no level 'most'"),
        ("copies = 3\n", None, "sets nothing"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str, line: int | None, said: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        load_thresholds(file)
    message = str(caught.value)
    assert said in message and "\n" not in message
    assert message.startswith(f"{file}: " if line is None else f"{file}:{line}: ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as a file of thresholds"):
        load_thresholds(tmp_path / "none.toml")


def test_no_sentence_of_checks_and_findings_is_orphaned(root: Path) -> None:
    code = _analysis(root)
    kinds = "(?:trust|validity|finding)"
    asked = {name for _, name in re.findall(rf'(["\x27])({kinds}\.[a-z0-9_.]+)\1', code)}
    begun = tuple(re.findall(rf'f"({kinds}\.[a-z0-9_.]+)\{{', code))
    there = {name for name in catalogue() if re.match(rf"{kinds}\.", name)}
    assert asked <= there
    assert {name for name in there - asked if not name.startswith(begun or ("-",))} == set()
