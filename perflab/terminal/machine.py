"""What `perflab doctor` prints."""

from __future__ import annotations

from perflab.tasks.doctor import DoctorReport, Item

_ITEM_MARKS = {"ok": "ok  ", "info": "-   ", "warn": "WARN", "missing": "NO  "}


def doctor(report: DoctorReport) -> str:
    """What is possible here, then everything looked at, with the command that brings what is missing."""
    can = [f"  {'yes' if there else 'no ':3}  {ability}" for ability, there in report.can.items()]
    blocks = ["Possible on this machine", *can, ""]
    for item in report.items:
        blocks += _item(item)
    return "\n".join(blocks)


def _item(item: Item) -> list[str]:
    lines = [f"{_ITEM_MARKS[item.status]}  {item.check.replace('_', ' ')}: {item.detail}"]
    lines += [f"      {item.without}"] if item.without else []
    return lines + [f"      {tool:6}  {command}" for tool, command in item.commands.items()]
