"""Rows made by Python as a source: the port of sources with a second kind behind it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icefield.errors import IcefieldError
from projects import TinyProject, tiny

pytestmark = pytest.mark.spark

TABLES = """
from decimal import Decimal
from pyspark.sql import functions as F
from icefield import append, expect, frames, full, table, unique

ROWS = {rows}


@table("seeds.rates", source=frames(lambda: ROWS, schema="code STRING, rate DECIMAL(6,3)"), refresh={refresh},
       checks=[unique("code"), expect("rate is positive", "rate > 0")], otherwise="quarantine")
def rates(rows):
    return rows


@table("gold.highest")
def highest(rates):
    return rates.agg(F.max("rate").alias("rate"))
"""


def declared(root: Path, rows: list[Any], refresh: str = "append()") -> TinyProject:
    return tiny(root, TABLES.format(rows=rows, refresh=refresh))


def codes(project: TinyProject) -> list[str]:
    return [code for (code,) in project.ask("SELECT code FROM seeds.rates ORDER BY code")]


def test_rows_are_taken_in_checked_and_set_aside(tmp_path: Path) -> None:
    project = declared(tmp_path, [("a", "1.5"), {"code": "b", "rate": "2.5"}, ("c", "-1"), ("a", "9"), ("d", "x")])
    assert project.run().ok
    assert codes(project) == ["a", "b"]
    waiting = project.ask("SELECT line, reasons, raw FROM seeds.rates__quarantine ORDER BY line")
    assert [(line, reasons) for line, reasons, _ in waiting] == [
        (3, ["rate is positive"]), (4, ["code is unique"]), (5, ["malformed: rate is not a valid DECIMAL(6,3)"]),
    ]  # fmt: skip
    assert waiting[2][2] == b'{"code":"d","rate":"x"}'
    assert project.run().status == "nothing new"


def test_rows_at_the_end_are_appended_and_other_ones_rebuild(tmp_path: Path) -> None:
    project = declared(tmp_path, [("a", "1")])
    project.run()
    state = tmp_path / "rows.txt"
    state.write_text("a b")
    source = TABLES.format(rows="[]", refresh="append()").replace(
        "lambda: ROWS", "lambda: [(c, '1') for c in Path(PLACE).read_text().split()]"
    )
    project.declare(f"from pathlib import Path\nPLACE = {str(state)!r}\n" + source)
    assert {one.action for one in project.run().tables} == {"rebuild", "refresh"}, "its code changed"
    state.write_text("a b c")
    assert {one.table: one.action for one in project.run().tables} == {
        "seeds.rates": "append", "gold.highest": "refresh",
    }  # fmt: skip
    assert codes(project) == ["a", "b", "c"]
    state.write_text("a c")
    result = project.run()
    told = {one.table: (one.action, one.reason) for one in result.tables}["seeds.rates"]
    assert told == ("rebuild", "its function returns different rows")
    assert codes(project) == ["a", "c"]


def test_a_table_that_is_read_in_full_is_computed_again_when_rows_change(tmp_path: Path) -> None:
    project = declared(tmp_path, [("a", "1")], refresh="full()")
    project.run()
    project.declare(TABLES.format(rows=[("a", "1"), ("b", "2")], refresh="full()"))
    project.run()
    assert codes(project) == ["a", "b"]


@pytest.mark.parametrize(("rows", "told"), [("[1]", "does not have the columns code, rate"), ("1 / 0", "ZeroDivision")])
def test_a_function_that_makes_no_rows_is_told(tmp_path: Path, rows: str, told: str) -> None:
    source = TABLES.format(rows="[]", refresh="append()").replace("lambda: ROWS", f"lambda: {rows}")
    project = tiny(tmp_path, source)
    with pytest.raises(IcefieldError, match=told):
        project.run()
