"""`sql`: a query as a function of DataFrames."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from icefield.declare import collecting, sql
from icefield.declare.queries import Query
from icefield.errors import InvalidQuery

if TYPE_CHECKING:
    from pathlib import Path


def test_the_names_in_braces_are_the_parameters_in_order() -> None:
    query = sql("SELECT {b.x}, {a[y]} FROM {a} JOIN {b} WHERE z RLIKE '[0-9]{{4}}'")
    assert list(inspect.signature(query).parameters) == ["b", "a"]


def test_comment_lines_at_the_top_describe_the_table() -> None:
    query = sql("-- One row a day.\n--   Exactly.\nSELECT 1 FROM {a} -- not this")
    assert isinstance(query, Query)
    assert query.comment == "One row a day. Exactly."


def test_a_regular_expression_with_braces_is_refused_and_shown_how() -> None:
    with pytest.raises(InvalidQuery) as refused:
        sql("SELECT * FROM {a} WHERE x RLIKE '[0-9]{4}'")
    assert "write {{4}}" in refused.value.remedy
    assert "test_sql.py:" in refused.value.where


def test_the_line_of_the_mistake_is_the_sql_files_own(tmp_path: Path) -> None:
    (tmp_path / "daily.sql").write_text("SELECT *\nFROM {a}\nWHERE x RLIKE '[0-9]{4}'\n")
    source = tmp_path / "gold.py"
    source.write_text("from icefield import sql\nsql('daily.sql')\n")
    with collecting(root=tmp_path), pytest.raises(InvalidQuery) as refused:
        exec(compile(source.read_text(), str(source), "exec"), {})
    assert refused.value.where == "daily.sql:3"


def test_the_file_is_looked_up_beside_the_declaring_one(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "q.sql").write_text("SELECT * FROM {a}")
    source = tmp_path / "sub" / "gold.py"
    source.write_text("from icefield import sql\nq = sql('q.sql')\n")
    space: dict[str, Query] = {}
    with collecting(root=tmp_path) as registry:
        exec(compile(source.read_text(), str(source), "exec"), space)
    assert space["q"].parameters == ("a",)
    assert registry.files == {str(tmp_path / "sub" / "q.sql")}


def test_a_missing_file_is_refused_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "days.sql").write_text("SELECT 1 FROM {a}")
    source = tmp_path / "gold.py"
    source.write_text("from icefield import sql\nsql('day.sql')\n")
    with collecting(root=tmp_path), pytest.raises(InvalidQuery) as refused:
        exec(compile(source.read_text(), str(source), "exec"), {})
    assert refused.value.where == "gold.py:2"
    assert "days.sql" in refused.value.remedy


@pytest.mark.parametrize("text", ["", "SELECT 1", "SELECT {a", "SELECT {} FROM {a}"])
def test_queries_that_depend_on_nothing_or_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(InvalidQuery):
        sql(text)
