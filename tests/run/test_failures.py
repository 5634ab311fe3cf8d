"""What an author reads when a function of theirs fails: the exception, the table, and their own line."""

from __future__ import annotations

from pathlib import Path

import pytest

from icefield.errors import BadFunction
from projects import ORDERS, TinyProject, order, tiny

pytestmark = pytest.mark.spark

UDF = """

@F.udf(IntegerType())
def boom(value):
    return 1 // (value - value)


@table("gold.boom")
def boomed(sales: DataFrame) -> DataFrame:
    return sales.withColumn("x", boom("id"))
"""
IN_THE_RUN = """

@table("gold.counted")
def counted(sales: DataFrame) -> DataFrame:
    names = {} if sales.count() else {"nokey": "id"}
    return sales.select(names["nokey"])
"""


def failing(root: Path, source: str) -> TinyProject:
    project = tiny(root, "from pyspark.sql.types import IntegerType\n" + source)
    project.land("1.csv", [order(1)])
    return project


def line(project: TinyProject, text: str) -> str:
    """The author's line with this text, as messages name it."""
    lines = (project.root / "tables.py").read_text().splitlines()
    return f"tables.py:{next(number for number, found in enumerate(lines, 1) if text in found)}"


def test_a_misspelt_column_is_told_once_at_its_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    project = failing(tmp_path, ORDERS.replace('F.sum("amount")', 'F.sum("amuont")'))
    with pytest.raises(BadFunction, match=r"gold\.by_customer does not match its inputs: .*amuont") as refused:
        project.run()
    assert refused.value.where == line(project, "amuont")
    assert capfd.readouterr().err == ""


def test_an_exception_over_empty_inputs_names_the_table_and_the_line(tmp_path: Path) -> None:
    project = failing(tmp_path, ORDERS + IN_THE_RUN.replace('{} if sales.count() else {"nokey": "id"}', "{}"))
    with pytest.raises(BadFunction, match=r"the function of gold\.counted raised KeyError: 'nokey'") as refused:
        project.run()
    assert refused.value.where == line(project, '["nokey"]')


def test_an_exception_over_the_rows_of_a_run_names_the_table_and_the_line(tmp_path: Path) -> None:
    project = failing(tmp_path, ORDERS + IN_THE_RUN)
    error = project.run().error
    assert "ICE-120 the function of gold.counted raised KeyError: 'nokey'" in error
    assert f"where: gold.counted, {line(project, 'return sales.select(names')}" in error


def test_an_exception_in_a_udf_is_told_with_its_line(tmp_path: Path) -> None:
    project = failing(tmp_path, ORDERS + UDF)
    error = project.run().error
    assert "ICE-703 gold.boom could not be computed: ZeroDivisionError: integer division or modulo by zero" in error
    assert f"where: gold.boom, {line(project, '1 // (value')}" in error
