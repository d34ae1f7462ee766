"""Each lesson against its own data: every typical mistake is recognized, and nothing said gives the answer away."""

import ast
import json
import re
import string
from typing import Any

import numpy as np
import pytest

from perflab.messages import catalogue
from perflab.tasks.breakdown import breakdown
from perflab.workshop import feedback
from perflab.workshop.checks import check, hint, judge, passes
from perflab.workshop.lessons import all_lessons, find_lesson, find_question
from perflab.workshop.lessons import eager as lesson_1
from perflab.workshop.questions import EXACT, Choice, Number, hints

LESSONS = all_lessons()
QUESTIONS = [(lesson, question) for lesson in LESSONS for question in lesson.questions]
NUMBERS = [(lesson, question) for lesson, question in QUESTIONS if isinstance(question, Number)]
each = pytest.mark.parametrize(("lesson", "question"), QUESTIONS, ids=lambda one: one.name)
each_number = pytest.mark.parametrize(("lesson", "question"), NUMBERS, ids=lambda one: one.name)

WORDS = {
    "idle_cause": {
        "right": ["host_bound", "launched late by the host", "the CPU", "host"],
        "not_started": ["not_started"], "in_graph": ["in_graph"], "no_request": ["no_request"],
        "unknown": ["unknown"], "memory": ["memory bandwidth", "HBM"], "attention": ["attention"],
        "communication": ["communication", "PCIe"], "compute": ["compute", "GEMM"],
    },
    "flag": {
        "right": ["--enforce-eager", "enforce_eager", "enforce_eager=False", "--no-enforce-eager"],
        "true": ["enforce_eager=True"], "graphs": ["cudagraph_mode", "--compilation-config", "CUDA graphs"],
        "attention_backend": ["--attention-backend", "FlashAttention-2", "VLLM_ATTENTION_BACKEND"],
        "mla": ["MLA", "VLLM_MLA_DISABLE"], "quantization": ["--quantization fp8", "awq"],
        "parallel": ["--tensor-parallel-size", "tp"], "batch": ["--max-num-seqs", "max_num_batched_tokens=8192"],
        "memory": ["--gpu-memory-utilization", "block_size=32"], "chunked": ["--enable-chunked-prefill"],
    },
    "unaffected_phase": {"right": ["mixed", "Mixed step"], "prefill": ["prefill"], "decode": ["decode"]},
}  # fmt: skip
"""What attendees write, by what is said to it."""


def test_lessons_and_questions_have_names_of_their_own() -> None:
    names = [question.name for _, question in QUESTIONS]
    assert len(names) == len(set(names))
    assert [lesson.number for lesson in LESSONS] == list(range(1, len(LESSONS) + 1))
    assert all(lesson.solution.is_file() and lesson.name.startswith(f"{lesson.number:02d}_") for lesson in LESSONS)
    assert find_lesson(1).questions


@each
def test_the_notebook_asks_it_once_and_offers_its_hints(lesson: Any, question: Any) -> None:
    code = [
        "".join(cell["source"])
        for cell in json.loads(lesson.solution.read_text(encoding="utf-8"))["cells"]
        if cell["cell_type"] == "code"
    ]
    asked = [source for source in code if f'check("{question.name}"' in source]
    assert len(asked) == 1 and f'# hint("{question.name}")' in asked[0]
    assert len(hints(question)) >= 2


@each
def test_all_it_may_say_is_in_the_catalogue_with_its_fields(lesson: Any, question: Any) -> None:
    facts = lesson.facts()
    fields = lesson.fields(facts)
    known = {name for name in catalogue() if name.startswith(f"{question.about}.")}
    mistakes = set(question.mistakes if isinstance(question, Choice) else question.mistakes(facts))
    said = {f"{question.about}.{name}" for name in ("right", *mistakes)} | set(hints(question))
    assert known == said, "a sentence is missing, or never said"
    for name in known:
        wanted = {part[1] for part in string.Formatter().parse(catalogue()[name]) if part[1]}
        assert wanted <= set(fields), name


@each_number
def test_every_mistake_gets_its_own_feedback(lesson: Any, question: Any) -> None:
    facts = lesson.facts()
    right, mistakes = question.right(facts), question.mistakes(facts)
    scale = 1e6 if question.kind == "time" else 1
    assert judge(question.name, right / scale).state == "pass"
    texts = set()
    for name, value in mistakes.items():
        assert np.isfinite(value) and abs(value - right) > 5 * EXACT * right, f"{name} is the right answer"
        verdict = judge(question.name, value / scale)
        assert (verdict.state, verdict.mistakes) == ("not_yet", (name,))
        texts.add(verdict.texts)
    assert len(texts) == len(mistakes)


@each_number
def test_rounded_to_two_or_three_digits_it_passes(lesson: Any, question: Any) -> None:
    right = question.right(lesson.facts()) / (1e6 if question.kind == "time" else 1)
    assert passes(question.name, float(f"{right:.3g}")) and passes(question.name, float(f"{right:.2g}"))
    assert not passes(question.name, right * 1.05) and not passes(question.name, right * 0.95)


@pytest.mark.parametrize(("name", "said"), WORDS.items(), ids=lambda one: one if isinstance(one, str) else "")
def test_words_get_what_belongs_to_them(name: str, said: dict[str, list[str]]) -> None:
    found = find_question(name)
    assert isinstance(found, tuple) and isinstance(found[1], Choice)
    assert set(said) == {"right", *found[1].mistakes}
    for what, answers in said.items():
        for answer in answers:
            verdict = judge(name, answer)
            assert (verdict.state == "pass") == (what == "right"), answer
            assert verdict.mistakes == (() if what == "right" else (what,)), answer


@each_number
def test_nothing_said_before_it_is_right_gives_the_number_away(lesson: Any, question: Any) -> None:
    facts = lesson.facts()
    right = question.right(facts)
    shown = right / 1e6 if question.kind == "time" else right
    answers = [right * by / (1e6 if question.kind == "time" else 1) for by in (0.5, 1.3, 7, 900, -1)]
    wrong = [value / (1e6 if question.kind == "time" else 1) for value in question.mistakes(facts).values()]
    texts = [text for answer in [*answers, *wrong, ...] for text in judge(question.name, answer).texts]
    texts += [catalogue()[name] for name in hints(question)]
    for text in texts:
        for number in re.findall(r"\d+(?:\.\d+)?", text):
            assert not any(abs(float(number) - by * shown) < 0.02 * abs(by * shown) for by in (1, 100)), text


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The plain text of every card shown."""
    shown: list[str] = []
    monkeypatch.setattr(feedback, "_display", lambda data, raw: shown.append(data["text/plain"]))
    return shown


def test_a_slip_in_the_name_is_told(cards: list[str]) -> None:
    verdict = judge("bussy_share", 0.5)
    assert verdict.state == "not_yet" and "busy_share" in verdict.texts[0]
    assert not passes("bussy_share", 0.5)
    check("bussy_share", 0.5)
    hint("bussy_share")
    assert len(cards) == 2 and all("Did you mean busy_share" in card for card in cards)


def test_hints_come_a_step_at_a_time(cards: list[str]) -> None:
    found = find_question("busy_share")
    assert isinstance(found, tuple)
    names = hints(found[1])
    for step in (1, 2, len(names), 99):
        hint("busy_share", step)
        out = cards.pop()
        assert sum(catalogue()[name] in out for name in names) == min(step, len(names))
        assert ("That was the last hint" in out) == (step >= len(names))


def test_a_right_answer_comes_with_the_guess(cards: list[str]) -> None:
    right = lesson_1.busy_share(lesson_1.facts())
    check("busy_share", right, guess=0.9)
    assert "You predicted 90.0 %" in cards.pop()
    check("busy_share", 1 - right, guess=0.9)
    assert "You predicted" not in cards.pop()


def test_the_answers_are_what_plain_counting_gives() -> None:
    """Busy time of decode once more, instant by instant, from kernels and steps alone."""
    rank = breakdown(lesson_1.EAGER, attribution=False).ranks[0]
    kernels = sorted(zip(rank.kernels["start_ns"], rank.kernels["start_ns"] + rank.kernels["dur_ns"], strict=True))
    busy = window = 0
    for step in rank.steps[rank.steps["phase"] == "decode"].itertuples():
        end, cursor = step.start_ns + step.dur_ns, step.start_ns
        window += step.dur_ns
        for first, last in kernels:
            busy += max(0, min(last, end) - max(first, cursor))
            cursor = max(cursor, min(last, end))
    facts = lesson_1.facts()
    assert busy / window == pytest.approx(lesson_1.busy_share(facts), rel=1e-12)
    # The estimate lies between the work alone and the step as it was, and near the step that had no late launch.
    ahead = rank.gaps[rank.gaps["cause"] == "host_bound"].groupby("step")["dur_ns"].sum()
    never_late = rank.steps[(rank.steps["phase"] == "decode") & ~rank.steps["step"].isin(ahead[ahead > 1].index)]
    assert len(never_late) == 1
    estimate = lesson_1.step_without_waiting(facts)
    assert busy / 7 < estimate < window / 7
    assert estimate == pytest.approx(float(never_late["dur_ns"].iloc[0]), rel=0.1)
    assert lesson_1.fields(facts)["ahead_launched"] == "100.0 %"


FORBIDDEN = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.Try, ast.With, ast.Lambda, ast.ListComp)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda one: one.name)
def test_the_notebook_is_short_cells_and_no_measured_number(lesson: Any) -> None:
    notebook = json.loads(lesson.solution.read_text(encoding="utf-8"))
    assert "".join(notebook["cells"][0]["source"]).startswith(f"# {lesson.title}\n")
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(ids) == len(set(ids)) and all(re.fullmatch(r"[a-z][a-z-]*", one) for one in ids)
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            kept = [line for line in text.splitlines() if line.strip() and "SOLUTION" not in line]
            assert len(kept) <= 8, cell["id"]
            assert not [node for node in ast.walk(ast.parse(text)) if isinstance(node, FORBIDDEN)], cell["id"]
            assert "..." not in text.replace("= ...", ""), cell["id"]
        else:
            assert not re.search(r"\d+(\.\d+)?\s*(%|ms|µs|tokens/s|times)", text), text
