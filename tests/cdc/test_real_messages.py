"""`icefield.cdc` on messages of a real Debezium.

`edge_cases.jsonl` is a recording of Debezium 3.6.2 on Postgres 16, with large values cut short: infinities, values out
of range, large values of all types that an update leaves alone, a changed key with REPLICA IDENTITY FULL, columns that
are added, dropped, renamed and widened. Messages of others are used where they are at hand (`ICEFIELD_CDC_DATA`, or
../shared/data/cdc).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from captured import EVENTS, PLACEHOLDER, event, events_of, recorded, text
from icefield import cdc

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
REAL = Path(os.environ.get("ICEFIELD_CDC_DATA", ROOT.parent / "shared/data/cdc"))
PRODUCTS = "id BIGINT, name STRING, description STRING, weight DOUBLE"

EDGES = Path(__file__).parent / "edge_cases.jsonl"


def edges(spark: Any, table: str) -> Any:
    messages = [one for one in recorded(EDGES) if one["topic"] == f"edge.public.{table}"]
    return spark.createDataFrame(events_of(messages), EVENTS)


def test_infinite_and_impossible_values(spark: Any) -> None:
    schema = (
        "id BIGINT, d DATE, ts TIMESTAMP, tz TIMESTAMP, ts3 TIMESTAMP, n DECIMAL(38,10), f DOUBLE, b BINARY,"
        " a ARRAY<STRING>, i ARRAY<INT>, j STRING, u STRING, x STRING"
    )
    parsed = cdc.parse(edges(spark, "edge"), schema, ["id"], milliseconds=["ts3"])
    first = parsed.where("sequence = 1 AND id < 10").orderBy("id")
    texts = first.selectExpr("id", *(f"CAST({name} AS STRING)" for name in ("d", "ts", "tz", "ts3", "n", "f", "j")))
    last, lowest = "9999-12-31", "0001-01-03"
    assert [tuple(row) for row in texts.collect()] == [
        (1, last, f"{last} 00:00:00", f"{last} 00:00:00", f"{last} 00:00:00", None, "Infinity", '{"a": 1}'),
        (2, lowest, f"{lowest} 00:00:00", f"{lowest} 00:00:00", f"{lowest} 00:00:00",
         "12345678901234567890.1234567890", "-Infinity", None),
        (3, None, None, None, "2026-01-02 03:04:05.123", None, "1.5", None),
        (4, None, None, None, None, None, None, None),
    ]  # fmt: skip
    misfits = [row.misfit for row in first.collect()]
    assert misfits == [["n"], None, ["d", "ts", "tz", "n"], ["d", "ts", "tz"]], "NaN, 44 BC, 1e30, the year 12000"
    row = first.collect()[0]
    assert (row.b, row.a, row.i) == (bytearray(b"\x00\xff"), ["a", "b"], [1, 2])


def test_with_full_replica_identity_a_changed_key_keeps_large_values(spark: Any) -> None:
    parsed = cdc.parse(edges(spark, "edge"), "id BIGINT, x STRING", ["id"])
    rows = parsed.where("id IN (1, 10)").orderBy("id", "sequence").select("id", "op", "x", "unavailable").collect()
    assert [(row.id, row.op) for row in rows] == [(1, "c"), (1, "u"), (1, "d"), (10, "c"), (10, "d")]
    assert len({row.x for row in rows}) == 1
    assert all(row.unavailable is None for row in rows)


def test_untouched_large_values_of_all_types(spark: Any) -> None:
    schema = "id BIGINT, a ARRAY<STRING>, i ARRAY<INT>, b BINARY, j STRING, v BIGINT"
    rows = cdc.parse(edges(spark, "edge2"), schema, ["id"]).orderBy("sequence").collect()
    assert [row.v for row in rows] == [1, 2, 3, 4, 4_000_000_000_000]
    for name in "aibj":
        assert all(row[name] == rows[0][name] and row[name] is not None for row in rows), name


def test_columns_that_are_added_dropped_renamed_and_widened(spark: Any) -> None:
    frame = edges(spark, "edge2")
    rows = cdc.parse(frame, "id BIGINT, j STRING, n STRING, v INT", ["id"]).orderBy("sequence").collect()
    assert rows[-1].j == rows[0].j, "a dropped column keeps the last value that it had"
    assert rows[2].undeclared == ["a", "b", "extra", "i"]
    assert rows[3].undeclared == ["a", "b", "extra", "i", "m"], "renamed: the new name is not declared"
    assert [row.misfit for row in rows] == [None, None, None, None, ["v"]], "wider than what is declared"


if REAL.is_dir():

    def rows_of(frame: Any) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in frame.collect()), key=str)

    def test_a_recording_of_debezium_3_6_on_postgres_16(spark: Any) -> None:
        items = [m for m in recorded(REAL / "recorded_item_events.jsonl") if m["topic"] == "shop.public.item"]
        frame = spark.createDataFrame(events_of(items), EVENTS)
        schema = "id BIGINT, name STRING, price DECIMAL(12,2), big STRING, at TIMESTAMP, d DATE, ts TIMESTAMP, j STRING"
        rows = cdc.parse(frame, schema, ["id"], truncates=frame).cache()
        assert rows.where("misfit IS NOT NULL OR undeclared IS NOT NULL").count() == 0
        kinds = [tuple(r) for r in rows.orderBy("id", "sequence").select("id", "op", "position").collect()]
        assert kinds == [
            (1, "r", 0), (1, "u", 3), (1, "d", 7), (2, "c", 1), (2, "u", 2), (2, "d", 4), (3, "c", 6), (3, "t", 11),
            (4, "c", 10), (4, "t", 11), (5, "c", 12), (6, "c", 9), (6, "t", 11),
        ]  # fmt: skip
        sizes = {(r.id, r.op): (r.n, r.unavailable) for r in rows.selectExpr("*", "length(big) AS n").collect()}
        assert sizes[2, "u"] == (sizes[2, "c"][0], None), "an untouched large value is the one before"
        assert sizes[3, "c"] == (None, ["big"]), "under a new key it is not known"
        now = cdc.latest(rows, "id", "sequence").select("id", "name")
        assert rows_of(now) == [(5, "after truncate")]

    @pytest.mark.parametrize("form", ["schema-exclude", "schema-include", "replica-identity"])
    def test_the_same_changes_in_three_forms_give_the_same_table(spark: Any, form: str) -> None:
        lines = (REAL / f"debezium-postgres-data-{form}.jsonl").read_text().splitlines()
        values = [json.loads(line) for line in lines]
        messages = []
        for offset, value in enumerate(values):
            value = value.get("payload", value)
            row = value["after"] or value["before"] or {"id": 111}
            messages.append({"partition": 0, "offset": offset, "key": text({"id": row["id"]}), "value": text(value)})
        frame = spark.createDataFrame(events_of(messages), EVENTS)
        rows = cdc.parse(frame, PRODUCTS, ["id"])
        now = cdc.latest(rows, "id", "sequence").select("id", "name", "description", "weight")
        assert rows_of(now) == [
            (101, "scooter", "Small 2-wheel scooter", 3.14),
            (102, "car battery", "12V car battery", 8.1),
            (103, "12-pack drill bits", "12-pack of drill bits with sizes ranging from #40 to #3", 0.8),
            (104, "hammer", "12oz carpenter's hammer", 0.75),
            (105, "hammer", "14oz carpenter's hammer", 0.875),
            (106, "hammer", "18oz carpenter hammer", 1.0),
            (107, "rocks", "box of assorted rocks", 5.1),
            (108, "jacket", "water resistent black wind breaker", 0.1),
            (109, "spare tire", "24 inch spare tire", 22.2),
            (110, "jacket", "new water resistent white wind breaker", 0.5),
        ]

    def test_a_real_update_that_leaves_a_large_value_alone(spark: Any) -> None:
        key, value = (REAL / "authors_update_toast.jsonl").read_text().splitlines()[:2]
        update = {"partition": 0, "offset": 7, "key": key, "value": value}
        before = event("c", json.loads(key), {"biography": "a long one"}, at=3)
        frame = spark.createDataFrame([before, *events_of([update])], EVENTS)
        schema = "id BIGINT, first_name STRING, last_name STRING, biography STRING, dob BIGINT"
        rows = cdc.parse(frame, schema, ["id"]).orderBy("sequence").collect()
        assert PLACEHOLDER in value
        assert [(row.last_name, row.biography) for row in rows] == [(None, "a long one"), ("Wolfe", "a long one")]

    def test_columns_that_come_and_go_in_the_source(spark: Any) -> None:
        """A series of another connector: columns are added, and the last messages are wider than the first."""
        events = []
        for file in sorted(REAL.glob("noschema_debezium-data-*.txt")):
            for line in file.read_text().splitlines():
                if line.startswith("{"):
                    events.append(json.loads(line))
        rows = [
            event(value["op"], {"id": (value["after"] or value["before"])["id"]}, value["after"], at=number)
            for number, value in enumerate(events)
        ]
        columns = sorted({name for value in events for name in (value["after"] or {}) if name != "id"})
        frame = spark.createDataFrame(rows, EVENTS)
        schema = ", ".join(["id BIGINT", *(f"`{name}` STRING" for name in columns)])
        parsed = cdc.parse(frame, schema, ["id"])
        assert parsed.where("misfit IS NOT NULL OR undeclared IS NOT NULL").count() == 0
        assert parsed.count() == len(rows)
        narrow = cdc.parse(frame, f"id BIGINT, `{columns[0]}` STRING", ["id"])
        assert narrow.where("undeclared IS NULL AND op <> 'd'").count() == 0
