import pandas as pd
import pytest

from perflab import schema
from perflab.errors import SchemaError


@pytest.mark.parametrize("table", schema.TABLES)
def test_an_empty_table_is_valid(table: str) -> None:
    assert len(schema.validate(schema.empty(table), table)) == 0


def test_a_missing_column_is_named() -> None:
    with pytest.raises(SchemaError, match="lacks column 'finish_ns'"):
        schema.validate(schema.empty("requests").drop(columns="finish_ns"), "requests")


def test_a_wrong_dtype_is_named() -> None:
    steps = schema.empty("steps").astype({"start_ns": "float64"})
    with pytest.raises(SchemaError, match="'start_ns': dtype float64, wanted int64"):
        schema.validate(steps, "steps")


def test_conform_orders_and_casts_without_touching_its_argument() -> None:
    frame = pd.DataFrame({"value": [1], "labels": [""], "metric": ["m"], "t_ns": [5], "more": [0]})
    made = schema.conform(frame, "samples")
    assert list(made) == ["t_ns", "metric", "labels", "value"]
    assert made["value"].dtype == "float64"
    assert list(frame) == ["value", "labels", "metric", "t_ns", "more"]


def test_every_group_is_made_of_categories_and_none_is_forgotten() -> None:
    grouped = [category for members in schema.GROUPS.values() for category in members]
    assert sorted(grouped) == sorted(schema.CATEGORIES)


def test_the_reference_has_every_table_with_every_column_and_unit() -> None:
    parts = schema.markdown().split("\n## ")[1:]
    assert [part.splitlines()[0] for part in parts] == list(schema.TABLES)
    for part, table in zip(parts, schema.TABLES.values(), strict=True):
        rows = [line.split(" | ")[:3] for line in part.splitlines() if line.startswith("| `")]
        assert rows == [[f"| `{c.name}`", c.dtype, c.unit] for c in table.columns]
