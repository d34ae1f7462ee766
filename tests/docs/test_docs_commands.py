"""What the documentation tells a reader to type is typed here: every page from top to bottom, in a folder of its own.

Quick commands run in this process; those that take minutes, and those of a shell that needs vLLM or a GPU, are read by
the real argument parser, and run by the slow tests where the machine can. Nothing is left out silently: a block in a
language that is not known, or with a mark that says nothing, fails.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import yaml
from doc_blocks import LANGUAGES, Block, blocks, commands, is_plain, logical_lines, pages, spans
from doc_workplace import AS_A_RULE, NEVER, PLACEHOLDERS, ROOT, furnish

from perflab import cli
from perflab.experiment import read_experiment
from perflab.experiment.study_file import read_study
from perflab.knowledge.categories import load_rules
from perflab.knowledge.thresholds import load_thresholds

PAGES = [page for page in pages() if page.is_file()]
BLOCKS = [block for page in PAGES for block in blocks(page)]
DRAWN = ROOT / "docs" / "gallery.md"
"""Its code is run where its pictures are drawn: test_docs_site.py."""


def name(thing: Path | Block) -> str:
    return thing.where if isinstance(thing, Block) else thing.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return furnish(tmp_path_factory.mktemp("docs") / "furnished")


@pytest.fixture
def workplace(furnished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with everything a page names, entered; commands of the shell find perflab."""
    place = tmp_path / "work"
    shutil.copytree(furnished, place, symlinks=True)
    program = tmp_path / "bin" / "perflab"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perflab "$@"\n')
    program.chmod(0o755)
    path = [str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser()))
    monkeypatch.chdir(place)
    mpl.use("Agg")
    return place


# Shell


def parsed(argv: list[str]) -> argparse.Namespace:
    """What perflab's own parser makes of the arguments."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            args, rest = cli._parser().parse_known_args(argv)
    except SystemExit as stop:
        assert stop.code == 0, f"perflab {' '.join(argv)}: {said.getvalue()}"
        return argparse.Namespace()
    assert not rest or argv[0] == "lab", f"perflab {' '.join(argv)}: {rest}"
    return args


def of_kind(argv: list[str], kinds: dict[str, str]) -> bool:
    words = " ".join(part for part in argv if not part.startswith("-"))
    return any(words == kind or words.startswith(f"{kind} ") for kind in kinds)


def only_parsed(block: Block, argv: list[str], *, slow: bool) -> bool:
    """Whether a command is not run: by a mark of the page, or by what doc_workplace.py says of all of its kind."""
    command = " ".join(["perflab", *argv])
    if block.marked(command, "not run") or of_kind(argv, NEVER):
        return True
    if slow or "--dry-run" in argv:
        return False
    return block.marked(command, "slow") or of_kind(argv, AS_A_RULE)


def filled(text: str) -> str:
    """The text with the words that stand for something of the reader's replaced."""
    return re.sub(r"\b(" + "|".join(PLACEHOLDERS) + r")\b", lambda match: PLACEHOLDERS[match[1]], text)


def run_here(argv: list[str]) -> tuple[int, str, str]:
    """Run one command of perflab: status, output, errors. What it writes is not there before."""
    written = [argv[n + 1] for n, part in enumerate(argv) if part in ("-o", "--out")]
    written += argv[2:3] if argv[:2] == ["workshop", "new"] else []
    for target in written:
        if Path(target).is_dir() and "--dry-run" not in argv:
            shutil.rmtree(target)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = cli.main(argv)
        except SystemExit as stop:
            status = int(stop.code or 0)
    return status, out.getvalue(), err.getvalue()


def run_line(block: Block, line: str, *, slow: bool, status: int = 0) -> str | None:
    """Run one line of perflab, sent into a file where it says so; its output, None where it was only parsed."""
    (argv,) = commands(line)
    parsed(argv)
    if only_parsed(block, argv, slow=slow):
        if argv[0] == "run" and Path(argv[1]).is_file():
            tried, out, err = run_here([*argv, "--dry-run"])
            assert tried == 0, f"{block.where}: {line} --dry-run\n{out}{err}"
        return None
    got, out, err = run_here(argv)
    if "--require" in argv and "not possible on this machine" in err:
        got = status  # what it is asked is whether this machine can
    assert got == status, f"{block.where}: {line}\nstatus {got}\n{out}{err}"
    if match := re.search(r"\s>\s*(\S+)", line.partition(" #")[0]):
        Path(match[1]).write_text(out)
    return out


def run_sh(block: Block, *, slow: bool) -> None:
    text = filled(block.text)
    syntax = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert syntax.returncode == 0, f"{block.where}: {syntax.stderr}"
    every = commands(text)
    for argv in every:
        parsed(argv)
    _makefile_and_scripts(block, text)
    lines = logical_lines(text)
    if any(_BELONGS_TOGETHER.match(line) for line in lines):
        if not any(block.marked(line, "not run") for line in lines) and not any(
            only_parsed(block, argv, slow=slow) for argv in every
        ):
            run_bash(block, text, block.status)
        return
    for number, line in enumerate(lines, 1):
        status = block.status if number == len(lines) else 0
        if is_plain(line):
            run_line(block, line, slow=slow, status=status)
        elif not (
            line.startswith("make ") or block.marked(line, "not run") or (block.marked(line, "slow") and not slow)
        ):
            run_bash(block, line, status)


_BELONGS_TOGETHER = re.compile(r"(for|if|case|while|export|cd|set)\b|\w+=")
"""Lines that others of the block need: then it is run as one script, or not at all."""


def run_bash(block: Block, text: str, status: int) -> None:
    done = subprocess.run(["bash", "-eu"], input=text, text=True, capture_output=True, check=False, timeout=900)
    assert done.returncode == status, f"{block.where}: status {done.returncode}\n{text}\n{done.stdout}{done.stderr}"


def _makefile_and_scripts(block: Block, text: str) -> None:
    for target in (line.split()[1] for line in logical_lines(text) if line.startswith("make ")):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, text=True, capture_output=True, check=False)
        assert done.returncode == 0, f"{block.where}: make {target}\n{done.stderr}"
    for argv in commands(text, "python"):
        if argv and argv[0].endswith(".py") and "/" in argv[0]:
            assert (ROOT / argv[0]).is_file(), f"{block.where}: {argv[0]}"


def run_console(block: Block, *, slow: bool) -> None:
    """Each `$ command`, and that what stands below it is what it prints; `...` stands for any lines."""
    for part in re.split(r"^\$ ", filled(block.text), flags=re.MULTILINE)[1:]:
        line, _, shown = part.partition("\n")
        assert line.startswith("perflab "), f"{block.where}: {line}"
        out = run_line(block, line, slow=slow)
        if out is not None:
            assert_shown(shown, out, f"{block.where}: {line}")


def assert_shown(shown: str, printed: str, where: str) -> None:
    lines = [line.rstrip() for line in printed.splitlines()]
    at, gap = 0, False
    for wanted in (line.rstrip() for line in shown.rstrip("\n").splitlines()):
        if wanted.strip() == "...":
            gap = True
            continue
        found = next((n for n in range(at, len(lines)) if lines[n] == wanted), None) if gap else at
        assert found is not None and found < len(lines), f"{where}\nis not printed:\n{wanted}\nprinted:\n{printed}"
        assert lines[found] == wanted, f"{where}\nthe page has\n{wanted}\nprinted is\n{lines[found]}"
        at, gap = found + 1, False
    assert gap or at == len(lines), f"{where}\nprints more; end the block with `...`:\n" + "\n".join(lines[at:])


# Python, YAML, TOML


def run_python(block: Block, names: dict[str, Any]) -> None:
    tree = ast.parse(block.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("perflab"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "perflab":
            assert hasattr(importlib.import_module("perflab"), node.attr), f"{block.where}: perflab.{node.attr}"
    if not block.marked("", "not run"):
        exec(compile(tree, block.where, "exec"), names)


PART_OF = {
    "engine": (),
    "profile": (),
    "model": (),
    "load": ("workloads",),
    "data": ("workloads",),
    "num_prompts": ("workloads",),
}
WHOLE = {"model": "Qwen/Qwen3-0.6B", "workloads": [{"input_lens": 8, "output_lens": 8, "load": {"concurrency": 1}}]}


def check_yaml(block: Block, folder: Path) -> None:
    """An experiment file, or parts of one (each line a variant where a key occurs again), as the reader wants it."""
    if "jobs" in yaml.safe_load(block.text):
        check_workflow(yaml.safe_load(block.text))
        return
    variants = [block.text]
    if re.match(r"(\w+):.*\n(?:\1:.*\n)+\Z", block.text):
        variants = block.text.splitlines()
    for number, text in enumerate(variants):
        document = yaml.safe_load(text)
        if not {"model", "workloads"} <= set(document):
            document = _completed(document, block)
        if isinstance(document.get("model"), dict) and "path" in document["model"]:
            document["model"]["path"] = str(folder / "data" / "models" / "llama3-8b")
        for workload in document["workloads"]:
            if isinstance(workload.get("data"), dict) and "path" in workload["data"]:
                (folder / workload["data"]["path"]).write_text("{}\n")
        for task in (document.get("accuracy") or {}).get("tasks", []):
            if isinstance(task, dict) and task.get("path", "").endswith(".yaml"):
                (folder / task["path"]).parent.mkdir(exist_ok=True)
                (folder / task["path"]).write_text("task: mine\n")
        file = folder / f"block-{number}.yaml"
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        if "variants" in document:
            read_study(file)
        else:
            read_experiment(file)


def check_workflow(document: dict[str, Any]) -> None:
    """A job of a CI service: what its steps call of perflab."""
    scripts = [step["run"] for job in document["jobs"].values() for step in job["steps"] if "run" in step]
    called = [argv for script in scripts for argv in commands(script)]
    assert called
    for argv in called:
        parsed(argv)


def _completed(part: dict[str, Any], block: Block) -> dict[str, Any]:
    whole: dict[str, Any] = {**WHOLE, "workloads": [dict(WHOLE["workloads"][0])]}
    for key, value in part.items():
        assert key in PART_OF, f"{block.where}: {key} is no part of an experiment file that is known here"
        target = whole["workloads"][0] if PART_OF[key] else whole
        target[key] = value
        kind = value.get("kind") if key == "data" and isinstance(value, dict) else None
        for given in {
            "prefix_repetition": ["input_lens"],
            "custom": ["input_lens"],
            "timed_trace": [*WHOLE["workloads"][0]],
        }.get(str(kind), []):
            target.pop(given, None)
    return whole


def check_toml(block: Block, folder: Path) -> None:
    file = folder / "block.toml"
    file.write_text(block.text)
    (load_rules if "[[rule]]" in block.text else load_thresholds)(file)


def work_through(page: Path, folder: Path, *, slow: bool) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "sh":
            run_sh(block, slow=slow)
        elif block.language == "console":
            run_console(block, slow=slow)
        elif block.language == "python" and page != DRAWN:
            run_python(block, names)
        elif block.language == "yaml":
            check_yaml(block, folder)
        elif block.language == "toml":
            check_toml(block, folder)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_does_what_it_says(page: Path, workplace: Path) -> None:
    work_through(page, workplace, slow=False)


def has_slow(page: Path) -> bool:
    return any(
        not only_parsed(block, argv, slow=True) and only_parsed(block, argv, slow=False)
        for block in blocks(page)
        if block.language in ("sh", "console")
        for argv in commands(filled(block.text))
    )


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize("page", [page for page in PAGES if has_slow(page)], ids=name)
def test_a_page_does_what_it_says_in_full(page: Path, workplace: Path) -> None:
    work_through(page, workplace, slow=True)


# The pages themselves


def test_every_block_says_its_language_and_every_mark_its_reason() -> None:
    for block in BLOCKS:
        assert block.language in LANGUAGES, f"{block.where}: ```{block.language}; known are {', '.join(LANGUAGES)}"
        assert all(len(mark.reason.split()) > 2 for mark in block.marks), f"{block.where}: the mark gives no reason"
        if block.language in ("", "text"):
            assert not commands(re.sub(r"^\s+", "", block.text, flags=re.MULTILINE)), (
                f"{block.where}: commands need ```sh"
            )
        assert block.language != "sh" or "$ perflab" not in block.text, (
            f"{block.where}: with its output it is ```console"
        )


def test_no_command_hides_outside_a_fence() -> None:
    for page in PAGES:
        inside = ""
        for number, line in enumerate(page.read_text().splitlines(), 1):
            fence = re.match(r"^\s*(`{3,}|~{3,})", line)
            if fence and inside in ("", fence[1]):
                inside = "" if inside else fence[1]
            assert inside or not re.match(r"^(?:    |\t)(?:\$ )?(?:perflab|make|python|pip) ", line), (
                f"{name(page)}:{number}"
            )


def sub_parser(words: list[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser of the command that the words begin with, and the words after it."""
    parser = cli._parser()
    while words:
        inner = next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
        if inner is None or words[0] not in inner.choices:
            break
        parser, words = inner.choices[words[0]], words[1:]
    return parser, words


def command_spans() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        for number, text in spans(page):
            if re.match(r"perflab\s+[a-z]", text):
                yield f"{name(page)}:{number}", text.split()[1:]


def test_commands_named_in_running_text_exist_with_their_options() -> None:
    seen = list(command_spans())
    assert len(seen) > 30
    for where, words in seen:
        parser, rest = sub_parser(words)
        assert parser.prog != "perflab", f"{where}: perflab {' '.join(words)}"
        options = {option for action in parser._actions for option in action.option_strings}
        for word in rest:
            flag = word.partition("=")[0]
            assert not re.match(r"--?[a-z]", flag) or flag in options, f"{where}: perflab {' '.join(words)}: no {flag}"


def test_what_a_page_shows_is_compared_line_by_line() -> None:
    printed = "a\nb\nc\nd\n"
    assert_shown("a\n...\nc\nd\n", printed, "")
    assert_shown("...\nb\n...\n", printed, "")
    for wrong in ("a\nc\n...\n", "a\nb\n", "...\nx\n...\n", "...\nd\nc\n"):
        with pytest.raises(AssertionError):
            assert_shown(wrong, printed, "")


@pytest.mark.parametrize(
    "text",
    [
        "perflab breakdwn x\n",
        "perflab breakdown llama3-8b-bf16 --no-such\n",
        "perflab breakdown no-such-run\n",
        "perflab latency no-such-run | cat; false\n",
    ],
)
def test_a_wrong_command_is_noticed(text: str, workplace: Path) -> None:
    with pytest.raises(AssertionError):
        run_sh(Block(DRAWN, 1, "sh", text), slow=False)
