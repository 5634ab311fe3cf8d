"""`files`: paths, parts, formats, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from icefield.declare import Files, files
from icefield.errors import InvalidName, InvalidOption, UnknownColumn


def made(path: str, **options: Any) -> Files:
    source = files(path, schema=options.pop("schema", "id BIGINT"), **options)
    assert isinstance(source, Files)
    return source


def test_parts_of_the_path_are_columns_and_wildcards() -> None:
    source = made("landing/{colour}_tripdata_{source_month}.csv")
    assert source.parts == ("colour", "source_month")
    assert source.glob == "landing/*_tripdata_*.csv"
    assert [column.name for column in source.columns] == [
        "id",
        "colour",
        "source_month",
        "source_file",
        "source_line",
        "ingested_at",
    ]


@pytest.mark.parametrize(
    ("path", "format_"),
    [
        ("a/*.csv", "csv"),
        ("a/*.csv.gz", "csv"),
        ("a/*.jsonl", "json"),
        ("a/*.ndjson", "json"),
        ("a/*.parquet", "parquet"),
        ("a/*.*", None),
        ("a/*", None),
        ("a/x_{month}.*", None),
    ],
)
def test_the_format_is_told_by_the_suffix(path: str, format_: str | None) -> None:
    assert made(path).format == format_


def test_a_stated_format_wins() -> None:
    assert made("a/*.txt", format="csv", sep=";").options == {"sep": ";"}


@pytest.mark.parametrize(
    ("path", "options", "says"),
    [
        ("a/*.txt", {}, "cannot be inferred"),
        ("a/*.csv", {"format": "cvs"}, "did you mean `csv`"),
        ("a/*.csv", {"new_columns": "keep"}, "is not one of add, ignore, fail"),
        ("a/*.csv", {"changed": "replaced"}, "did you mean `replace`"),
        ("a/*.csv", {"deleted": "withdrawn"}, "did you mean `withdraw`"),
        ("a/{Month}.csv", {}, "is not a valid column name"),
        ("a/{m}/{m}.csv", {}, "twice"),
        ("a/{m.csv", {}, "cannot be parsed"),
        ("a/*.csv", {"heading": True}, "has no option heading"),
        ("a/*.csv", {"encoding": "utf-99"}, "is not known"),
        ("a/*.csv", {"null_values": "N/A"}, "is a single string"),
        ("a/*.csv", {"batch": "month"}, "is not a part of the path"),
        ("a/{month}.csv", {"batch": "moth"}, "did you mean `month`"),
        ("a/{month}.csv", {"batch": "month", "changed": "ignore"}, "contradict each other"),
        ("a/*.png", {"format": "binary"}, "takes no schema"),
        ("a/*.csv", {"schema": ""}, "needs a schema"),
        ("a/*.csv", {"sep": "||"}, "is not a single character"),
        ("", {}, "is not a path"),
    ],
)
def test_wrong_options_are_refused_with_their_line(path: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        made(path, **options)
    assert says in str(refused.value)
    assert "test_sources.py:" in refused.value.where


def test_a_schema_that_names_what_the_source_adds_is_refused() -> None:
    with pytest.raises(InvalidName, match="source_file"):
        made("a/*.csv", schema="id BIGINT, source_file STRING")


def test_an_alias_of_an_unknown_column_is_refused() -> None:
    with pytest.raises(UnknownColumn, match="did you mean `id`"):
        made("a/*.csv", aliases={"idd": ["ID"]})
