"""`perflab workshop`: an attendee's folder, from a checkout and from an installed wheel."""

import shutil
import tomllib
from pathlib import Path

import pytest

from perflab import places
from perflab.cli import main
from perflab.workshop.lessons import all_lessons

NAMES = [f"{lesson.name}.ipynb" for lesson in all_lessons()]


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_folder_holds_exercises_and_how_to_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "day 1"
    assert main(["workshop", "new", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert files(folder) == sorted([*NAMES, "README.md"])
    assert err == "" and f"jupyter lab '{folder / NAMES[0]}'" in out
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert f"jupyter lab {NAMES[0]}" in readme and "Solutions" not in readme and "{" not in readme
    assert "SOLUTION" not in (folder / NAMES[0]).read_text(encoding="utf-8")


def test_solutions_come_in_a_folder_of_their_own_without_marks(tmp_path: Path) -> None:
    assert main(["workshop", "new", str(tmp_path), "--lesson", "1", "--solutions"]) == 0
    assert files(tmp_path) == sorted([NAMES[0], "README.md", f"solutions/{NAMES[0]}"])
    given, solution = (tmp_path / NAMES[0]).read_text(), (tmp_path / "solutions" / NAMES[0]).read_text()
    assert "SOLUTION" not in solution and "= ...  # your turn" not in solution and "= ...  # your turn" in given
    assert "Solutions" in (tmp_path / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("argv", "says"), [(["full"], "is not empty"), (["file"], "is a file"), (["new", "--lesson", "99"], "no lesson 99")]
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    argv: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    assert main(["workshop", "new", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.count("\n") == 1
    assert files(tmp_path) == ["file", "full/mine.txt"]


def test_the_list_names_every_lesson(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workshop", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(NAMES) and all(
        lesson.title in line for lesson, line in zip(all_lessons(), lines, strict=True)
    )


def test_an_installed_wheel_has_the_lessons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """The wheel's layout, made by hand from what pyproject.toml puts into it."""
    build = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    put = build["targets"]["wheel"]["force-include"]
    package = tmp_path / "site-packages" / "perflab"
    shutil.copytree(root / "notebooks", tmp_path / "site-packages" / put["notebooks"])
    monkeypatch.setattr(places, "_PACKAGE", package)
    assert all_lessons()[0].solution.is_relative_to(package)
    assert main(["workshop", "new", str(tmp_path / "folder")]) == 0
    assert files(tmp_path / "folder") == sorted([*NAMES, "README.md"])
