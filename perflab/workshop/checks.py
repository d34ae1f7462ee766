"""What a lesson's notebook calls: `check` an answer, ask for a `hint`, and show more once an answer `passes`."""

from __future__ import annotations

from typing import Any

from perflab.messages import say
from perflab.workshop.feedback import show_hints, show_verdict
from perflab.workshop.lessons import find_question
from perflab.workshop.questions import Verdict, hints


def judge(question: str, answer: Any) -> Verdict:
    """How an answer stands; never raises for an answer, whatever it is."""
    found = find_question(question)
    if isinstance(found, list):
        return Verdict(question, "not_yet", (say("workshop.no_question", question=question, known=", ".join(found)),))
    lesson, asked = found
    facts = lesson.facts()
    return asked.judge(answer, facts, lesson.fields(facts))


def check(question: str, answer: Any, *, guess: Any = ...) -> None:
    """Check an answer and show what can be said of it.

    Parameters
    ----------
    question
        Name of the question, as the notebook has it.
    answer
        The attendee's; `...` is no answer yet.
    guess
        What the attendee predicted; set beside the right answer once that was found.
    """
    verdict = judge(question, answer)
    extra = []
    found = find_question(question)
    if verdict.state == "pass" and not isinstance(found, list):
        extra.append(found[1].difference(guess, found[0].facts()))
    show_verdict(verdict, extra)


def passes(question: str, answer: Any) -> bool:
    """Whether an answer passes its check; shows nothing."""
    return judge(question, answer).state == "pass"


def hint(question: str, step: int = 1) -> None:
    """Show the first hints of a question, up to number `step`; a later hint says more."""
    found = find_question(question)
    if isinstance(found, list):
        show_verdict(judge(question, ...))
        return
    names = hints(found[1])
    shown = names[: max(1, min(int(step), len(names)))]
    show_hints(question, [say(name) for name in shown], left=len(names) - len(shown))
