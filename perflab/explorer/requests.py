"""Placeholder."""

from typing import Any


class RequestViews:
    """Views of single requests."""

    points: Any
    requests: Any
    cause: Any
    life: Any
    similar: Any
