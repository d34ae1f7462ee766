"""Groups of fields of the experiment editor: rows that can be added and taken away."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets

from perflab.capture.probe import Probe
from perflab.messages import say
from perflab.start.parts import fill, panel
from perflab.tasks.editing import argument_help, argument_names, numbers_of, text_of, value_of

Changed = Callable[[Any], None]
_LOADS = {"at most, at once": "concurrency", "a second": "rate", "as written": ""}
_PASS_KINDS = ("torch", "nsys", "ncu")


def text(name: str, changed: Changed, *, width: str = "20rem", placeholder: str = "") -> Any:
    """A field for a text, with its label."""
    made = ipywidgets.Text(description=say(name), placeholder=placeholder, continuous_update=True)
    made.layout, made.style = ipywidgets.Layout(width=width), {"description_width": "initial"}
    made.observe(changed, names="value")
    return made


def number(name: str, changed: Changed, value: int = 1, *, least: int = 1) -> Any:
    """A field for a whole number, with its label."""
    made = ipywidgets.BoundedIntText(value=value, min=least, max=10**7, description=say(name))
    made.layout, made.style = ipywidgets.Layout(width="13rem"), {"description_width": "initial"}
    made.observe(changed, names="value")
    return made


class Rows:
    """Rows of fields with a button each to take it away, and one to add another."""

    def __init__(self, changed: Changed, add: str) -> None:
        self.changed = changed
        self.rows: list[dict[str, Any]] = []
        self.box = ipywidgets.VBox()
        self.add = ipywidgets.Button(description=say(add), icon="plus", layout=ipywidgets.Layout(width="12rem"))
        self.add.on_click(self._added)
        self.widget = ipywidgets.VBox([self.box, self.add])

    def _added(self, _: Any) -> None:
        self.append(self.fresh())
        self.changed(None)

    def fresh(self) -> Any:
        """What a new row begins with."""
        return {}

    def fields(self, value: Any) -> dict[str, Any]:
        """The fields of a row that shows `value`; what no field shows is kept under `kept`."""
        raise NotImplementedError

    def append(self, value: Any) -> None:
        """Add a row at the end."""
        row = self.fields(value)
        gone = ipywidgets.Button(icon="times", tooltip=say("start.editor.remove"), layout={"width": "2.2rem"})
        gone.on_click(lambda _: self.remove(row))
        shown = [field for name, field in row.items() if name not in ("kept", "help")]
        line = ipywidgets.HBox([*shown, gone], layout=ipywidgets.Layout(flex_flow="row wrap"))
        row["line"] = ipywidgets.VBox([line, row["help"]]) if "help" in row else line
        self.rows.append(row)
        self.box.children = tuple(one["line"] for one in self.rows)

    def remove(self, row: dict[str, Any]) -> None:
        """Take a row away."""
        self.rows = [one for one in self.rows if one is not row]
        self.box.children = tuple(one["line"] for one in self.rows)
        self.changed(None)

    def clear(self) -> None:
        """Take all rows away."""
        self.rows = []
        self.box.children = ()


class Arguments(Rows):
    """The engine's arguments: a name, with those there are offered, and a value as YAML writes it."""

    def __init__(self, changed: Changed) -> None:
        super().__init__(changed, "start.editor.add_argument")
        self.engine: Probe | None = None

    def fresh(self) -> Any:
        """An argument without a name."""
        return ("", None)

    def fields(self, value: Any) -> dict[str, Any]:
        """Name, value, and what vLLM takes there."""
        name = ipywidgets.Combobox(
            value=str(value[0]), placeholder="max_model_len", options=argument_names(self.engine)
        )
        name.layout = ipywidgets.Layout(width="18rem")
        given = ipywidgets.Text(value=text_of(value[1]), layout=ipywidgets.Layout(width="18rem"))
        row = {"name": name, "value": given, "help": panel()}
        name.observe(lambda _: self._help(row), names="value")
        name.observe(self.changed, names="value")
        given.observe(self.changed, names="value")
        self._help(row)
        return row

    def _help(self, row: Mapping[str, Any]) -> None:
        told = argument_help(row["name"].value.strip(), self.engine)
        fill(row["help"], f'<p class="quiet">{html.escape(told)}</p>' if told else "")

    def know(self, engine: Probe) -> None:
        """From here on names are offered and explained as this vLLM has them."""
        self.engine = engine
        for row in self.rows:
            row["name"].options = argument_names(engine)
            self._help(row)

    def show(self, arguments: Mapping[str, Any], engine: Probe | None) -> None:
        """Show these arguments instead."""
        self.engine = engine or self.engine
        self.clear()
        for pair in arguments.items():
            self.append(pair)

    def value(self) -> dict[str, Any]:
        """The arguments; rows without a name are left out."""
        named = [(row["name"].value.strip(), row["value"].value) for row in self.rows]
        return {name: value_of(given) for name, given in named if name}


class Workloads(Rows):
    """What is measured: lengths, loads, prompts."""

    def __init__(self, changed: Changed) -> None:
        super().__init__(changed, "start.editor.add_workload")

    def fresh(self) -> Any:
        """A workload that can be measured as it is."""
        return {
            "name": f"w{len(self.rows)}", "input_lens": 128, "output_lens": 64, "load": {"concurrency": [1, 8]},
        }  # fmt: skip

    def fields(self, value: Any) -> dict[str, Any]:
        """Fields of one; keys without a field are kept."""
        known = ("name", "input_lens", "output_lens", "load", "num_prompts")
        load = value.get("load")
        key = next((k for k in ("concurrency", "rate") if isinstance(load, dict) and set(load) == {k}), "")
        kind = ipywidgets.Dropdown(options=_LOADS, value=key, layout=ipywidgets.Layout(width="9.5rem"))
        kind.observe(self.changed, names="value")
        fields = {
            "name": text("start.editor.workload", self.changed, width="13rem"),
            "input_lens": text("start.editor.input_lens", self.changed, width="13rem"),
            "output_lens": text("start.editor.output_lens", self.changed, width="13rem"),
            "load": text("start.editor.load", self.changed, width="14rem"),
            "load_kind": kind,
            "num_prompts": text("start.editor.prompts", self.changed, width="24rem"),
        }
        for name in ("name", "input_lens", "output_lens", "num_prompts"):
            fields[name].value = text_of(value.get(name))
        fields["load"].value = text_of(load[key] if key else load)
        return {**fields, "kept": {name: one for name, one in value.items() if name not in known}}

    def show(self, workloads: Sequence[Mapping[str, Any]]) -> None:
        """Show these workloads instead."""
        self.clear()
        for one in workloads:
            self.append(dict(one))

    def value(self) -> list[dict[str, Any]]:
        """The workloads."""
        return [_workload(row) for row in self.rows]


def _workload(row: Mapping[str, Any]) -> dict[str, Any]:
    load = numbers_of(row["load"].value)
    key = row["load_kind"].value
    found = {
        "name": row["name"].value.strip() or None, **row["kept"],
        "input_lens": numbers_of(row["input_lens"].value), "output_lens": numbers_of(row["output_lens"].value),
        "load": {key: load} if key and load is not None else load, "num_prompts": value_of(row["num_prompts"].value),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


class Profiles(Rows):
    """The profiling passes."""

    def __init__(self, changed: Changed) -> None:
        super().__init__(changed, "start.editor.add_profile")

    def fresh(self) -> Any:
        """A pass that fits most."""
        names = {row["id"].value for row in self.rows}
        name = next(n for i in range(1, 1000) if (n := "steps" if i == 1 else f"steps-{i}") not in names)
        return {"id": name, "input_len": 128, "output_len": 16, "concurrency": 4, "max_steps": 24}

    def fields(self, value: Any) -> dict[str, Any]:
        """Fields of one; keys without a field are kept."""
        known = ("id", "kind", "teacher", "input_len", "output_len", "concurrency", "max_steps")
        kind = ipywidgets.Dropdown(options=_PASS_KINDS, value=value.get("kind", "torch"), layout={"width": "6rem"})
        teacher = ipywidgets.Checkbox(
            value=bool(value.get("teacher")), description=say("start.editor.teacher"), indent=False
        )
        teacher.layout = ipywidgets.Layout(width="11rem")
        fields = {"id": text("start.editor.pass", self.changed, width="12rem"), "kind": kind, "teacher": teacher}
        fields["id"].value = str(value.get("id") or "")
        for name in ("input_len", "output_len", "concurrency", "max_steps"):
            fields[name] = text(f"start.editor.{name}", self.changed, width="9.5rem")
            fields[name].value = text_of(value.get(name))
        for control in (kind, teacher):
            control.observe(self.changed, names="value")
        return {**fields, "kept": {name: one for name, one in value.items() if name not in known}}

    def show(self, profiles: Sequence[Mapping[str, Any]]) -> None:
        """Show these passes instead."""
        self.clear()
        for one in profiles:
            self.append(dict(one))

    def value(self) -> list[dict[str, Any]]:
        """The passes."""
        return [_pass(row) for row in self.rows]


def _pass(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {
        "id": row["id"].value.strip() or None, "kind": None if row["kind"].value == "torch" else row["kind"].value,
        "teacher": True if row["teacher"].value else None,
        **{name: value_of(row[name].value) for name in ("input_len", "output_len", "concurrency", "max_steps")},
        **row["kept"],
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}
