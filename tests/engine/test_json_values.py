"""JSON objects that are decided without Spark are what `parse` would have made of them."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from icefield.declare import files
from icefield.engine.intake.files import parse, undecided
from icefield.engine.intake.files.splits import LINE_LIMIT
from icefield.engine.intake.json_values import JsonObjects
from icefield.engine.origin import PROBLEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from icefield.declare import Files

pytestmark = pytest.mark.spark

SCHEMA = "i INT, b BIGINT, d DOUBLE, m DECIMAL(8,2), s STRING, t TIMESTAMP, o BOOLEAN, y DATE"
VALUES = (
    "1", "-1", "1.0", "1.5", "1.50", "0.1", "1e3", "1E-7", "-0", "-0.0", "99999999999", "123456789012345678901", "true",
    "false", "null", '""', '"1"', '" 1"', '"1.0"', '"abc"', '"2026-08-01"', '"2026-08-01T10:00:00Z"',
    '"2026-08-01 10:00:00.123456"', '"2026-08-01T10:00:00.5+02:00"', '"2026-02-30"', '"2026-08-01Z"', '"Z"', "[1]",
    '{"x":1}', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud800"', "NaN", "Infinity", "01", "+1", ".5", "'x'", '"true"',
    "1.999", '"12.345"', "12.34", "1e400", '"\\t"', '"a\\nb"',
)  # fmt: skip
TEXTS = (
    "", " ", "{}", "[]", "1", '"x"', "null", "{", '{"i":1', '{"i":1}}', '{"i":1} {"i":2}', ' {"i":1} ', '{"i":1,}',
    "{'i':1}", '{"i":1,"i":2}', '{"I":1}', '{"i":1,"zz":2}', '{"i":1,"zz":null}', '\ufeff{"i":1}', '{"alt":5}',
    '{"alt":5,"i":6}', '{"i":null,"alt":7}', '{"i" : 1 , "s" : "a,b"}', '{i:1}', '// x\n{"i":1}', '{"s":"\x01"}',
)  # fmt: skip


def reference(spark: SparkSession, source: Files, texts: list[str]) -> list[tuple[Any, ...]]:
    """Values and problem of each text, by Spark's parser."""
    frame = spark.createDataFrame(list(enumerate(texts)), "at INT, value STRING")
    found, wrong = undecided.json_values(frame, source)
    rows = found.withColumn(PROBLEM, parse.cell_problems(wrong, source))
    told = rows.select("at", *parse.values(source.schema), PROBLEM).orderBy("at").toArrow()
    return [tuple(row.values())[1:] for row in told.to_pylist()]


def require_same(spark: SparkSession, source: Files, texts: list[str]) -> int:
    """Whatever is decided here is decided alike; how many that is."""
    found = JsonObjects(source, "UTC").classify([text.encode() for text in texts])
    expected = reference(spark, source, texts)
    for place, at in enumerate(found.kept.tolist()):
        values = tuple(column[place].as_py() for column in found.values)
        assert (*values, None) == expected[at], texts[at]
    for at, problem in found.malformed.items():
        assert expected[at][-1] == problem, texts[at]
    assert len(found.kept) + len(found.malformed) + len(found.undecided) == len(texts)
    return len(found.kept) + len(found.malformed)


def test_every_value_of_every_type_is_what_the_parser_makes_of_it(spark: SparkSession) -> None:
    source: Files = files("x.json", schema=SCHEMA)  # type: ignore[assignment]
    texts = [f'{{"{column.name}":{value}}}' for column in source.schema for value in VALUES if "ud800" not in value]
    assert require_same(spark, source, texts) > len(texts) // 3


def test_every_form_of_an_object_is_what_the_parser_makes_of_it(spark: SparkSession) -> None:
    source: Files = files("x.json", schema="i INT, s STRING", aliases={"i": ["alt"]})  # type: ignore[assignment]
    assert require_same(spark, source, list(TEXTS)) > 4
    ignoring: Files = files("x.json", schema="i INT, s STRING", new_columns="ignore")  # type: ignore[assignment]
    require_same(spark, ignoring, list(TEXTS))


def test_objects_of_many_fields_are_what_the_parser_makes_of_them(spark: SparkSession) -> None:
    source: Files = files("x.json", schema=SCHEMA)  # type: ignore[assignment]
    chance = random.Random(20261118)
    names = [column.name for column in source.schema]
    some = [value for value in VALUES if "ud800" not in value]
    texts = [
        "{" + ", ".join(f'"{name}": {chance.choice(some)}' for name in chance.sample(names, chance.randint(0, 8))) + "}"
        for _ in range(400)
    ]
    require_same(spark, source, texts)


def test_what_the_parser_never_sees_is_told_here() -> None:
    source: Files = files("x.json", schema="s STRING")  # type: ignore[assignment]
    long = json.dumps({"s": "x" * LINE_LIMIT}).encode()
    found = JsonObjects(source, "UTC", noun="message").classify([b'{"s":"\xff"}', long, b'{"s":"\\ud800"}'])
    assert found.malformed[0] == "malformed: the message is not UTF-8"
    assert found.malformed[1].startswith(f"malformed: the message has {len(long)} bytes, sha256 ")
    assert found.undecided.tolist() == [2], "half of a pair is no text"


def test_types_and_zones_without_a_plain_form_are_left_to_the_parser() -> None:
    nested: Files = files("x.json", schema="s STRUCT<a: INT>")  # type: ignore[assignment]
    assert JsonObjects(nested, "UTC").classify([b'{"s":{"a":1}}']).undecided.tolist() == [0]
    times: Files = files("x.json", schema="t TIMESTAMP")  # type: ignore[assignment]
    text = b'{"t":"2026-08-01 10:00:00"}'
    assert JsonObjects(times, "Europe/Berlin").classify([text]).undecided.tolist() == [0]
    assert JsonObjects(times, "UTC").classify([text]).kept.tolist() == [0]
