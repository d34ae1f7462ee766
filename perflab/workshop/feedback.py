"""What an attendee sees under a check: a card that says how the answer stands, in JupyterLab and in a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import IPython.display

from perflab.messages import say
from perflab.report.blocks import text_html
from perflab.report.show import MEDIA
from perflab.workshop.questions import Verdict

_display: Any = IPython.display.display

# Colours that read on a light and on a dark page alike: JupyterLab gives no style sheet of ours.
_COLOURS = {"pass": (46, 160, 88), "not_yet": (214, 137, 16), "open": (128, 138, 148), "hint": (66, 133, 204)}


def show_verdict(verdict: Verdict, extra: Sequence[str] = ()) -> None:
    """Show how an answer stands; `extra` paragraphs come first."""
    texts = [text for text in (*extra, *verdict.texts) if text]
    data = {"question": verdict.question, "state": verdict.state, "mistakes": list(verdict.mistakes)}
    _card(verdict.state, say(f"workshop.state.{verdict.state}"), texts, data)


def show_hints(question: str, texts: Sequence[str], left: int) -> None:
    """Show the hints so far, and how many more there are."""
    more = say("workshop.hint.more", question=question, next=len(texts) + 1) if left else say("workshop.hint.last")
    _card("hint", say("workshop.state.hint"), [*texts, more], {"question": question, "state": "hint", "left": left})


def _card(state: str, head: str, texts: Sequence[str], data: dict[str, Any]) -> None:
    red, green, blue = _COLOURS[state]
    body = "".join(text_html(text) for text in texts)
    html = (
        f'<div class="lesson {state}" style="border-left: 4px solid rgb({red}, {green}, {blue}); '
        f"background: rgba({red}, {green}, {blue}, 0.1); border-radius: 4px; padding: 0.6em 1em; margin: 0.4em 0; "
        f'max-width: 46rem; line-height: 1.5"><strong>{head}</strong>{body}</div>'
    )
    plain = "\n".join([head, *texts])
    _display({"text/html": html, "text/plain": plain, MEDIA: {"kind": "lesson", "text": plain, **data}}, raw=True)
