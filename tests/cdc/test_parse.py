"""`cdc.parse`: typed, each event once, in an order of its own, and nothing that an event does not say."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest

from captured import EVENTS, PLACEHOLDER, event
from icefield import by_key, cdc, lookup, table
from icefield.errors import InvalidCapture
from icefield.testing import assert_incremental

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, name STRING, notes STRING, price DECIMAL(10,2)"
ONE = {"id": 1}


def parsed(spark: Any, *events: tuple[Any, ...], schema: str = SCHEMA, **options: Any) -> list[Any]:
    """What becomes of some events, key by key."""
    frame = spark.createDataFrame(list(events), EVENTS)
    keys = options.pop("keys", ["id"])
    rows = cdc.parse(frame, schema, keys, **options)
    return rows.orderBy(*keys, "sequence").collect()


def values(rows: list[Any], column: str) -> list[Any]:
    return [row[column] for row in rows]


def whole(name: str, notes: str | None = None, price: str | None = "1.00") -> dict[str, Any]:
    return {"name": name, "notes": notes, "price": price}


# -- events


def test_one_row_an_event_with_where_it_was_seen(spark: Any) -> None:
    rows = parsed(spark, event("c", ONE, whole("a"), at=4, lsn=90), event("u", ONE, whole("b"), at=7, lsn=95))
    assert [(r.id, r.name, r.price, r.op, r.position, r.lsn, r.sequence) for r in rows] == [
        (1, "a", Decimal("1.00"), "c", 4, 90, 1),
        (1, "b", Decimal("1.00"), "u", 7, 95, 2),
    ]
    assert not any(row.is_deleted or row.is_snapshot or row.unavailable or row.misfit or row.undeclared for row in rows)


def test_an_event_that_is_sent_again_counts_once_where_it_was_seen_first(spark: Any) -> None:
    first, second = event("c", ONE, whole("a"), at=1), event("u", ONE, whole("b"), at=2)
    again = event("c", ONE, whole("a"), at=8, lsn=1001), event("u", ONE, whole("b"), at=9, lsn=1002)
    rows = parsed(spark, *again, second, first, first)
    assert values(rows, "position") == [1, 2]
    assert values(rows, "name") == ["a", "b"]


def test_events_without_an_lsn_are_not_taken_for_one_another(spark: Any) -> None:
    def names(*events: tuple[Any, ...]) -> list[Any]:
        without = spark.createDataFrame(list(events), EVENTS).selectExpr("* EXCEPT (lsn)", "nullif(lsn, -1) AS lsn")
        return values(cdc.parse(without, SCHEMA, ["id"]).orderBy("sequence").collect(), "name")

    updates = [event("u", ONE, whole(name), at=at, lsn=-1) for at, name in enumerate("abc")]
    assert names(*updates) == ["a", "b", "c"]
    assert names(event("c", ONE, whole("new"), at=0, lsn=50), *updates[1:]) == ["new", "b", "c"], (
        "as in their partition"
    )


def test_rows_of_a_snapshot_whose_keys_do_not_fit_are_all_there(spark: Any) -> None:
    """All rows of a snapshot have one LSN."""
    rows = parsed(spark, *(event("r", {"id": f"x{n}"}, whole(f"{n}"), at=n, lsn=7) for n in range(3)))
    assert [(row.id, row.name) for row in rows] == [(None, "0"), (None, "1"), (None, "2")]


def test_a_delete_has_the_values_that_the_row_had(spark: Any) -> None:
    gone = event("d", ONE, at=3, before={"id": 1, "name": None, "notes": None, "price": None})
    rows = parsed(spark, event("c", ONE, whole("a", "n"), at=1), gone)
    assert [(r.name, r.notes, r.is_deleted) for r in rows] == [("a", "n", False), ("a", "n", True)]


def test_only_the_message_key_names_a_row_that_is_deleted(spark: Any) -> None:
    (row,) = parsed(spark, event("d", ONE, at=3))
    assert (row.id, row.name, row.is_deleted) == (1, None, True)


def test_without_a_message_key_the_row_tells_its_key(spark: Any) -> None:
    frame = spark.createDataFrame([event("c", ONE, whole("a"), at=1)], EVENTS)
    without = frame.selectExpr(*(f"{'CAST(NULL AS STRING)' if c == 'key' else c} AS {c}" for c in frame.columns))
    (row,) = cdc.parse(without, SCHEMA, ["id"]).collect()
    assert row.id == 1


def test_a_key_of_several_columns(spark: Any) -> None:
    schema = "order_id BIGINT, line_no INT, quantity INT"
    events = [event("c", {"order_id": 7, "line_no": n}, {"quantity": n * 10}, at=n) for n in (1, 2)]
    rows = parsed(spark, *events, schema=schema, keys=["order_id", "line_no"])
    assert [(r.order_id, r.line_no, r.quantity) for r in rows] == [(7, 1, 10), (7, 2, 20)]


# -- order


def test_the_place_in_the_partition_decides_and_not_the_lsn(spark: Any) -> None:
    """A snapshot's LSN may be larger than that of a change which came after it."""
    rows = parsed(
        spark,
        event("u", ONE, whole("newer"), at=5, lsn=400),
        event("r", ONE, whole("snapshot"), at=2, lsn=900),
        event("u", ONE, whole("newest"), at=6, lsn=950),
    )
    assert values(rows, "name") == ["snapshot", "newer", "newest"]
    assert values(rows, "is_snapshot") == [True, False, False]


def test_between_partitions_the_lsn_decides_for_all_64_bits(spark: Any) -> None:
    far = 2**62
    rows = parsed(
        spark,
        event("c", ONE, whole("first"), at=90, partition=0, lsn=far),
        event("u", ONE, whole("third"), at=91, partition=0, lsn=far + 2),
        event("u", ONE, whole("second"), at=3, partition=1, lsn=far + 1),
    )
    assert values(rows, "name") == ["first", "second", "third"]


def test_a_snapshots_lsn_does_not_put_it_after_the_changes_of_another_partition(spark: Any) -> None:
    rows = parsed(
        spark,
        event("r", ONE, whole("snapshot"), at=1, partition=0, lsn=900),
        event("u", ONE, whole("first"), at=2, partition=0, lsn=400),
        event("u", ONE, whole("second"), at=0, partition=1, lsn=500),
    )
    assert values(rows, "name") == ["snapshot", "first", "second"]


def test_event_time_does_not_run_backwards(spark: Any) -> None:
    rows = parsed(
        spark,
        event("c", ONE, whole("a"), at=1, seconds=100),
        event("u", ONE, whole("b"), at=2, seconds=40),
        event("u", ONE, whole("c"), at=3, seconds=160),
    )
    start = rows[0].source_ts
    assert [int((row.event_time - start).total_seconds()) for row in rows] == [0, 0, 60]
    assert [int((row.source_ts - start).total_seconds()) for row in rows] == [0, -60, 60]


# -- values that an event does not have


def test_a_placeholder_is_the_value_before_it_over_any_number_of_events(spark: Any) -> None:
    rows = parsed(
        spark,
        event("c", ONE, whole("a", "large"), at=1),
        event("u", ONE, whole("b", PLACEHOLDER), at=2),
        event("u", ONE, whole("c", PLACEHOLDER), at=3),
        event("u", ONE, whole("d", None), at=4),
        event("u", ONE, whole("e", PLACEHOLDER), at=5),
    )
    assert values(rows, "notes") == ["large", "large", "large", None, None]
    assert values(rows, "unavailable") == [None] * 5


def test_a_placeholder_never_takes_a_value_of_a_row_that_was_deleted(spark: Any) -> None:
    """Another row may have got that key: its value is not known, and that is said."""
    rows = parsed(
        spark,
        event("c", ONE, whole("a", "of another row"), at=1),
        event("d", ONE, at=2),
        event("c", ONE, whole("b", PLACEHOLDER), at=3),
        event("u", ONE, whole("c", PLACEHOLDER), at=4),
        event("u", ONE, whole("d", "known again"), at=5),
        event("u", ONE, whole("e", PLACEHOLDER), at=6),
    )
    assert values(rows, "notes") == ["of another row", "of another row", None, None, "known again", "known again"]
    assert values(rows, "unavailable") == [None, None, ["notes"], ["notes"], None, None]


def test_a_snapshot_makes_an_unavailable_value_known(spark: Any) -> None:
    rows = parsed(
        spark,
        event("c", ONE, whole("a", PLACEHOLDER), at=1),
        event("r", ONE, whole("a", "large"), at=2),
        event("u", ONE, whole("b", PLACEHOLDER), at=3),
    )
    assert values(rows, "notes") == [None, "large", "large"]
    assert values(rows, "unavailable") == [["notes"], None, None]


@pytest.mark.parametrize(
    "sent",
    [
        PLACEHOLDER,
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        "5f5f646562657a69756d5f756e617661696c61626c655f76616c7565",
        [PLACEHOLDER],
        list(PLACEHOLDER.encode()),
        {PLACEHOLDER: PLACEHOLDER},
    ],
    ids=["text", "base64", "hex", "text[]", "int[]", "hstore"],
)
def test_the_placeholder_has_many_forms(spark: Any, sent: Any) -> None:
    rows = parsed(spark, event("c", ONE, {"notes": "large"}, at=1), event("u", ONE, {"notes": sent}, at=2))
    assert values(rows, "notes") == ["large", "large"]


def test_the_placeholder_can_be_another_one(spark: Any) -> None:
    rows = parsed(
        spark, event("c", ONE, {"notes": "large"}, at=1), event("u", ONE, {"notes": "-"}, at=2), placeholder="-"
    )
    assert values(rows, "notes") == ["large", "large"]


def test_a_column_that_is_absent_is_not_set_to_null(spark: Any) -> None:
    rows = parsed(
        spark,
        event("c", ONE, {"name": "a"}, at=1),
        event("u", ONE, whole("b", "added"), at=2),
        event("u", ONE, {"name": "c"}, at=3),
        event("u", ONE, whole("d", None), at=4),
    )
    assert values(rows, "notes") == [None, "added", "added", None]
    assert values(rows, "unavailable") == [None] * 4


def test_columns_that_are_not_declared_are_named(spark: Any) -> None:
    rows = parsed(spark, event("c", ONE, {**whole("a"), "zip": 1, "age": 2}, at=1))
    assert values(rows, "undeclared") == [["age", "zip"]]


def test_a_renamed_column_is_found_by_its_alias(spark: Any) -> None:
    (row,) = parsed(
        spark,
        event("c", ONE, {"position": 3}, at=8),
        schema="id BIGINT, shelf INT",
        aliases={"shelf": "position"},
    )
    assert (row.shelf, row.position, row.undeclared) == (3, 8, None)


def test_a_column_that_was_renamed_keeps_its_values_by_both_names(spark: Any) -> None:
    events = [
        event("c", {"no": 1}, {"no": 1, "label": "a"}, at=1),
        event("u", {"id": 1}, {"id": 1, "title": "b"}, at=2),
        event("u", {"id": 1}, {"id": 1, "title": None}, at=3),
        event("c", {"no": 2}, {"no": 2, "label": "kept"}, at=4),
    ]
    schema, aliases = "id BIGINT, name STRING", {"id": ["id", "no"], "name": ["title", "label"]}
    rows = parsed(spark, *events, schema=schema, aliases=aliases)
    assert [(row.id, row.name, row.undeclared) for row in rows] == [
        (1, "a", None), (1, "b", None), (1, None, None), (2, "kept", None)
    ]  # fmt: skip


# -- truncate


def truncated(spark: Any, *events: tuple[Any, ...]) -> list[Any]:
    frame = spark.createDataFrame(list(events), EVENTS)
    return cdc.parse(frame, SCHEMA, ["id"], truncates=frame).orderBy("id", "sequence").collect()


def test_a_truncate_deletes_every_row_that_is_there(spark: Any) -> None:
    two, three = {"id": 2}, {"id": 3}
    rows = truncated(
        spark,
        event("c", ONE, whole("a"), at=1),
        event("c", two, whole("b"), at=2),
        event("d", two, at=3),
        event("t", None, at=4),
        event("c", ONE, whole("again"), at=5),
        event("c", three, whole("later"), at=6),
    )
    assert [(r.id, r.op, r.name, r.is_deleted, r.position) for r in rows] == [
        (1, "c", "a", False, 1),
        (1, "t", "a", True, 4),
        (1, "c", "again", False, 5),
        (2, "c", "b", False, 2),
        (2, "d", "b", True, 3),
        (3, "c", "later", False, 6),
    ]


def test_truncates_in_a_row_and_sent_again_delete_once(spark: Any) -> None:
    rows = truncated(
        spark,
        event("c", ONE, whole("a"), at=1),
        event("t", None, at=2),
        event("t", None, at=3),
        event("t", None, at=9, lsn=1002),
    )
    assert values(rows, "op") == ["c", "t"]
    assert values(rows, "position") == [1, 2]


def test_a_truncate_of_another_partition_comes_by_its_lsn(spark: Any) -> None:
    rows = truncated(
        spark,
        event("c", ONE, whole("a"), at=50, partition=1, lsn=100),
        event("t", None, at=2, partition=0, lsn=150),
        event("c", ONE, whole("b"), at=51, partition=1, lsn=200),
    )
    assert values(rows, "op") == ["c", "t", "c"]


def test_no_value_is_carried_over_a_truncate(spark: Any) -> None:
    rows = truncated(
        spark,
        event("c", ONE, whole("a", "old"), at=1),
        event("t", None, at=2),
        event("c", ONE, whole("b", PLACEHOLDER), at=3),
    )
    assert values(rows, "notes") == ["old", "old", None]
    assert rows[2].unavailable == ["notes"]


# -- types


def sent(spark: Any, kind: str, value: Any, **options: Any) -> Any:
    (row,) = parsed(spark, event("c", ONE, {"v": value}, at=1), schema=f"id BIGINT, v {kind}", **options)
    assert (row.misfit is None) == (value is None or row.v is not None), "a value that does not fit is said to"
    return row.v


MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 123456)
LAST, FIRST = dt.datetime(9999, 12, 31), dt.datetime(1, 1, 3)
TYPED = [
    ("BIGINT", 2**62, 2**62),
    ("INT", 2**40, None),
    ("INT", "12", 12),
    ("INT", 1.5, None),
    ("SMALLINT", -3, -3),
    ("BOOLEAN", True, True),
    ("DOUBLE", 1.25, 1.25),
    ("DOUBLE", "Infinity", float("inf")),
    ("STRING", 'a "quoted" \\ text\n', 'a "quoted" \\ text\n'),
    ("STRING", "", ""),
    ("STRING", '{"a": 1}', '{"a": 1}'),
    ("STRING", 12, "12"),
    ("STRING", None, None),
    ("DECIMAL(12,2)", "19.99", Decimal("19.99")),
    ("DECIMAL(12,2)", "-0.10", Decimal("-0.10")),
    ("DECIMAL(12,2)", "1E+3", Decimal("1000.00")),
    ("DECIMAL(12,2)", "1.005", None),
    ("DECIMAL(12,2)", "99999999999.99", None),
    ("DECIMAL(12,2)", "B88=", None),
    ("DECIMAL(12,2)", "NAN", None),
    ("DECIMAL(38,2)", "123456789012345678901234567890123456.78", Decimal("123456789012345678901234567890123456.78")),
    ("DATE", 20455, dt.date(2026, 1, 2)),
    ("DATE", -719162, dt.date(1, 1, 1)),
    ("DATE", "2026-01-02Z", dt.date(2026, 1, 2)),
    ("DATE", -2147472692, dt.date(9999, 12, 31)),
    ("DATE", -2147472691, dt.date(1, 1, 3)),
    ("DATE", 2932897, None),
    ("DATE", "infinity", dt.date(9999, 12, 31)),
    ("TIMESTAMP", 1767323045123456, MOMENT),
    ("TIMESTAMP", "2026-01-02T03:04:05.123456Z", MOMENT),
    ("TIMESTAMP", "2026-01-02T04:04:05.123456+01:00", MOMENT),
    ("TIMESTAMP", -1, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    ("TIMESTAMP", 9223372036825200000, LAST),
    ("TIMESTAMP", -9223372036832400000, FIRST),
    ("TIMESTAMP", "infinity", LAST),
    ("TIMESTAMP", "-infinity", FIRST),
    ("TIMESTAMP", "-0043-03-15T00:00:00.000000Z", None),
    ("TIMESTAMP", 316516204800000000, None),
    ("TIMESTAMP", "+294247-01-10T04:00:25.2Z", LAST),
    ("TIMESTAMP", "+292278994-08-16T23:00:00Z", LAST),
    ("TIMESTAMP", "-290308-12-21T19:59:27.6Z", FIRST),
    ("TIMESTAMP", "+12000-01-01T00:00:00Z", None),
    ("TIMESTAMP", "yesterday, about noon", None),
    ("TIMESTAMP_NTZ", 1767323045123456, MOMENT),
    ("TIMESTAMP_NTZ", "2026-01-02T03:04:05.123456Z", MOMENT),
    ("TIMESTAMP_NTZ", 9223372036825200000, LAST),
    ("BINARY", "aGVsbG8=", bytearray(b"hello")),
    ("ARRAY<STRING>", ["a", None, "b"], ["a", None, "b"]),
    ("ARRAY<INT>", [1, 2], [1, 2]),
    ("ARRAY<INT>", "no array", None),
]


def test_values_as_debezium_sends_them(spark: Any) -> None:
    kinds = [kind for kind, _, _ in TYPED]
    schema = ", ".join(["id BIGINT", *(f"v{n} {kind}" for n, kind in enumerate(kinds))])
    given = {f"v{n}": value for n, (_, value, _) in enumerate(TYPED)}
    (row,) = parsed(spark, event("c", ONE, given, at=1), schema=schema)
    found = [row[f"v{n}"] for n in range(len(TYPED))]
    assert found == [wanted for _, _, wanted in TYPED]
    wrong = [f"v{n}" for n, (_, value, wanted) in enumerate(TYPED) if value is not None and wanted is None]
    assert row.misfit == wrong


def test_timestamps_of_three_decimals_come_in_milliseconds(spark: Any) -> None:
    assert sent(spark, "TIMESTAMP", 1767323045123, milliseconds=["v"]) == dt.datetime(2026, 1, 2, 3, 4, 5, 123000)
    assert sent(spark, "TIMESTAMP", 9223372036825200, milliseconds=["v"]) == LAST


def test_a_value_that_does_not_fit_is_null_and_named_and_not_the_one_before(spark: Any) -> None:
    rows = parsed(
        spark, event("c", ONE, whole("a", price="1.00"), at=1), event("u", ONE, whole("a", price="1.005"), at=2)
    )
    assert values(rows, "price") == [Decimal("1.00"), None]
    assert values(rows, "misfit") == [None, ["price"]]


def test_an_update_without_a_row_is_said_to_be_one(spark: Any) -> None:
    rows = parsed(spark, event("c", ONE, whole("a"), at=1), event("u", ONE, None, at=2))
    assert values(rows, "name") == ["a", "a"]
    assert values(rows, "misfit") == [None, ["after"]]


# -- refused


@pytest.mark.parametrize(
    ("schema", "keys", "message"),
    [
        ("id BIGINT, position INT", ["id"], "the name of one that parse"),
        ("id BIGINT", ["no"], "'no' is no column"),
        ("id BIGINT", [], "no key is given"),
        ("id BIGINT, m MAP<STRING,STRING>", ["id"], "which cannot be compared"),
        ("id ARRAY<INT>", ["id"], "which cannot be compared"),
    ],
)
def test_what_cannot_be_parsed_is_refused(spark: Any, schema: str, keys: list[str], message: str) -> None:
    frame = spark.createDataFrame([], EVENTS)
    with pytest.raises(InvalidCapture, match=message):
        cdc.parse(frame, schema, keys)


# -- by key


def test_it_is_proven_for_by_key_and_kept_in_every_order(spark: Any) -> None:
    def rows(name: str, number: int, at: int) -> list[tuple[Any, ...]]:
        key = {"id": number}
        return [
            event("c", key, whole(name, "large"), at=at),
            event("u", key, whole("b", PLACEHOLDER), at=at + 1),
            event("d", key, at=at + 2),
        ]

    events = [*rows("a", 1, 0), *rows("b", 2, 3), event("t", None, at=6), event("c", ONE, whole("z"), at=7)]
    frame = spark.createDataFrame(events, EVENTS)
    truncates = frame.where("op = 't'")

    @table(
        "parsed.t",
        inputs={"events": "raw.t", "truncates": lookup("parsed.t_truncates")},
        refresh=by_key(**cdc.key_of(SCHEMA, ["id"])),
    )
    def typed(events: Any, truncates: Any) -> Any:
        return cdc.parse(events, SCHEMA, ["id"], truncates=truncates)

    first = {"events": frame.where("offset < 5"), "truncates": truncates.limit(0)}
    assert_incremental(typed, [first, {"events": frame.where("offset >= 5"), "truncates": truncates}])


def test_the_key_of_an_event_is_sql_over_its_columns(spark: Any) -> None:
    text = cdc.key_of("day DATE, no INT, x STRING", ["day", "no"])
    assert list(text) == ["day", "no"]
    row = event("c", {"day": 20455, "no": 7}, {"x": "y"}, at=1)
    frame = spark.createDataFrame([row, event("t", None, at=2)], EVENTS)
    assert [tuple(r) for r in frame.selectExpr(*text.values()).collect()] == [(dt.date(2026, 1, 2), 7), (None, None)]
    assert json.loads(row[3]) == {"day": 20455, "no": 7}
