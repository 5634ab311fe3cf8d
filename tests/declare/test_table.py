"""`table`: the function stays itself, the declaration is collected, mistakes have a line."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import pytest

from icefield.declare import (
    Append,
    Full,
    append,
    collecting,
    expect,
    expect_table,
    files,
    fresh_within,
    full,
    not_null,
    references,
    setting,
    table,
    unique,
)
from icefield.errors import DeclarationError, InvalidFunction, InvalidName, InvalidOption, InvalidSetting

SOURCE = files("landing/*.csv", schema="id BIGINT")


def test_the_function_is_returned_unchanged_and_callable() -> None:
    def double(x: int) -> int:
        return 2 * x

    with collecting() as registry:
        assert table("a.b", inputs={"x": "a.c"})(double) is double
    assert double(4) == 8
    assert [declared.name for declared in registry.tables] == ["a.b"]


def test_outside_of_a_load_declaring_only_returns_the_function() -> None:
    @table("a.b")
    def same(x: int) -> int:
        return x

    assert same(1) == 1


def test_a_declaration_knows_its_file_line_and_docstring() -> None:
    with collecting() as registry:

        @table("a.b")
        def orders(x: object) -> object:
            """Every order.

            As it came.
            """
            return x

    (declared,) = registry.tables
    assert declared.location.file == "test_table.py"
    assert declared.location.line == orders.__code__.co_firstlineno
    assert declared.comment == "Every order.\n\nAs it came."


def test_one_function_may_declare_many_tables() -> None:
    with collecting() as registry:

        @table("a.one")
        @table("a.two")
        def f(x: object) -> object:
            return x

        for name in ("three", "four"):
            table(f"a.{name}")(f)
    assert [declared.name for declared in registry.tables] == ["a.two", "a.one", "a.three", "a.four"]


def test_refresh_defaults_to_append_for_a_source_and_full_otherwise() -> None:
    with collecting() as registry:
        table("a.b", source=SOURCE)(lambda_free)
        table("a.c")(lambda_free)
    assert [declared.refresh for declared in registry.tables] == [Append(), Full()]
    assert (append().kind, full().kind) == ("append", "full")


def lambda_free(x: object) -> object:
    return x


def test_parameters_with_a_default_are_ordinary_arguments() -> None:
    def f(x: object, limit: int = 3) -> object:
        return x, limit

    with collecting() as registry:
        table("a.b")(f)
        table("a.c")(functools.partial(f, limit=4))
    assert [declared.parameters for declared in registry.tables] == [("x",), ("x",)]


def test_annotations_are_never_evaluated() -> None:
    space: dict[str, Any] = {}
    exec("from __future__ import annotations\ndef f(x: Nowhere) -> Nothing: return x", space)
    with collecting() as registry:
        table("a.b")(space["f"])
    assert registry.tables[0].parameters == ("x",)


def test_two_loads_do_not_mix() -> None:
    with collecting() as outer:
        table("a.outer")(lambda_free)
        with collecting() as inner:
            table("a.inner")(lambda_free)
        table("a.again")(lambda_free)
    assert [declared.name for declared in outer.tables] == ["a.outer", "a.again"]
    assert [declared.name for declared in inner.tables] == ["a.inner"]


def test_a_table_never_applied_is_an_error_at_the_end_of_the_load() -> None:
    def load() -> None:
        with collecting():
            table("a.b")
            table("a.c")(lambda_free)

    with pytest.raises(InvalidFunction) as refused:
        load()
    assert "a.b" in refused.value.what
    assert "test_table.py:" in refused.value.where


@pytest.mark.parametrize("name", ["orders", "A.b", "a.B", "a.b.c", "a-b.c", "a.1b", "", None, "a.b c"])
def test_names_that_are_not_schema_dot_table_are_refused(name: Any) -> None:
    with pytest.raises(InvalidName) as refused:
        table(name)
    assert "test_table.py:" in refused.value.where


@pytest.mark.parametrize("name", ["ops.runs", "bronze.orders__quarantine", "bronze.orders__changes"])
def test_icefields_own_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="is reserved for icefield's own tables"):
        table(name)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"otherwise": "quarantined"}, "did you mean `quarantine`"),
        ({"refresh": "full"}, "is not a valid refresh"),
        ({"refresh": full}, "are the parentheses missing?"),
        ({"source": "landing/*.csv"}, "is not a valid source"),
        ({"checks": ["id > 0"]}, "is not a check"),
        ({"tags": "daily"}, "tags=['daily']"),
        ({"owners": ["ann"]}, "neither an e-mail address nor a team"),
        ({"partitioned_by": "days(ts)"}, "partitioned_by=['days(ts)']"),
        ({"inputs": ["a.b"]}, "is not a mapping"),
        ({"inputs": {"x": 3}}, "which is not a table name, ref(), lookup(), source or declared function"),
        ({"columns": "id BIGNT"}, "BIGINT"),
        ({"partitioned_by": ["day(ts)"]}, "did you mean `days`"),
        ({"checks": [expect("same", "a > 0"), expect("same", "b > 0")]}, "two different checks"),
        ({"checks": [references("id", to="a.c", otherwise="quarantine")]}, "whole table"),
        ({"checks": [expect_table("n", "count(*) > 0", otherwise="drop")]}, "whole table"),
        ({"checks": [fresh_within("t", timedelta(1), otherwise="drop")]}, "whole table"),
        ({"checks": [unique("id", otherwise="quarantine")]}, "the row that arrived first"),
        ({"checks": [unique("id")], "otherwise": "drop"}, "the row that arrived first"),
    ],
)
def test_wrong_options_are_refused_with_line_and_remedy(options: dict[str, Any], says: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        table("a.b", **options)
    assert says in str(refused.value)
    assert "test_table.py:" in refused.value.where
    assert refused.value.remedy


def test_unique_may_set_aside_where_the_order_of_arrival_is_known() -> None:
    with collecting() as registry:
        table("a.b", source=SOURCE, checks=[not_null("id"), unique("id")], otherwise="quarantine")(lambda_free)
    assert [check.name for check in registry.tables[0].checks] == ["id is not null", "id is unique"]


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x, "lambda"),
        (3, "is not a function"),
        (dict, "cannot be inspected"),
    ],
)
def test_what_cannot_be_a_tables_function_is_refused(function: Any, says: str) -> None:
    with pytest.raises(InvalidFunction, match=says):
        table("a.b")(function)


def test_a_function_that_reads_nothing_is_refused() -> None:
    def nothing() -> None: ...

    def only_defaults(x: int = 1) -> None: ...

    def starred(*frames: object) -> None: ...

    for function in (nothing, only_defaults, starred):
        with pytest.raises(InvalidFunction) as refused:
            table("a.b")(function)
        assert "test_table.py:" in refused.value.where


def test_a_setting_is_the_profiles_value_else_the_default() -> None:
    with collecting(settings={"limit": 7, "rate": 2, "names": ["a"]}) as registry:
        assert setting("limit", 5) == 7
        assert setting("other", "x") == "x"
        assert setting("rate", 0.5) == 2.0
        assert setting("names", ("b",)) == ("a",)
    assert registry.used_settings == {"limit": 7, "other": "x", "rate": 2.0, "names": ("a",)}
    assert setting("limit", 5) == 5


def test_a_setting_of_another_type_is_refused_with_its_line() -> None:
    with collecting(settings={"limit": "7", "flag": 1}):
        with pytest.raises(InvalidSetting, match="has type int") as refused:
            setting("limit", 5)
        with pytest.raises(InvalidSetting):
            setting("flag", default=False)
    assert "test_table.py:" in refused.value.where


def test_wrong_options_inside_of_inputs_are_refused() -> None:
    with pytest.raises(InvalidOption, match="which is not a table name"):
        table("a.b", inputs={"x": None})  # type: ignore[dict-item]
