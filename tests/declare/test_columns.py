"""DDL text is read as Spark reads it, without Spark."""

from __future__ import annotations

import pytest

from icefield.declare import Column, format_columns, parse_columns
from icefield.errors import InvalidName, InvalidSchema


def test_names_types_nullability_and_comments() -> None:
    assert parse_columns(
        "id bigint not null comment 'the key', amount decimal(12, 2), note string COMMENT 'it''s'"
    ) == (
        Column("id", "BIGINT", nullable=False, comment="the key"),
        Column("amount", "DECIMAL(12,2)"),
        Column("note", "STRING", comment="it's"),
    )


def test_nested_types_keep_the_case_of_their_fields() -> None:
    (column,) = parse_columns("a MAP<STRING, ARRAY<STRUCT<firstName: STRING NOT NULL, n: DECIMAL(5)>>>")
    assert column.type == "MAP<STRING,ARRAY<STRUCT<firstName:STRING NOT NULL,n:DECIMAL(5,0)>>>"


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("integer", "INT"),
        ("long", "BIGINT"),
        ("numeric(9,4)", "DECIMAL(9,4)"),
        ("decimal", "DECIMAL(10,0)"),
        ("timestamp_ltz", "TIMESTAMP"),
        ("timestamp_ntz", "TIMESTAMP_NTZ"),
    ],
)
def test_other_spellings_of_a_type_become_one(written: str, kept: str) -> None:
    assert parse_columns(f"a {written}")[0].type == kept


def test_quoted_names_and_double_quoted_comments() -> None:
    assert parse_columns('`a ``b`` c` INT COMMENT "say \\"hi\\""') == (Column("a `b` c", "INT", comment='say "hi"'),)


def test_formatted_columns_read_back_equal() -> None:
    columns = parse_columns(
        "a INT NOT NULL COMMENT 'it''s a \\\\ b', `odd name` STRUCT<x: INT COMMENT 'y', `z z`: DATE>"
    )
    assert parse_columns(format_columns(columns)) == columns


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "unexpected end of text"),
        ("id", "unexpected end of text"),
        ("id BIGNT", "BIGINT"),
        ("id VARCHAR(3)", "STRING"),
        ("id INT,", "unexpected end of text"),
        ("id INT name STRING", "unexpected `name`"),
        ("id DECIMAL(40,2)", "is not a valid type"),
        ("id DECIMAL(2,4)", "is not a valid type"),
        ("id ARRAY<INT", "expected `>`"),
        ("id INT; DROP", "unexpected `;`"),
        ("id INT COMMENT oops", "COMMENT needs a quoted string"),
        ("id INT, ID STRING", "declared twice"),
    ],
)
def test_text_that_cannot_be_read_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        parse_columns(text)
    assert says in str(refused.value)
    assert "test_columns.py:" in refused.value.where


def test_columns_of_icefields_own_are_refused() -> None:
    with pytest.raises(InvalidName, match="_icefield"):
        parse_columns("id INT, _icefield_run STRING")


def test_columns_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidSchema, match="not as list"):
        parse_columns(["id INT"])  # type: ignore[arg-type]
