"""`cdc.latest` and `cdc.history`: the state of each key, and every state that it has had."""

from __future__ import annotations

from typing import Any

import pytest

from captured import EVENTS, PLACEHOLDER, event
from icefield import by_key, cdc
from icefield.errors import InvalidCapture
from icefield.testing import assert_incremental

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, name STRING, city STRING"
ONE, TWO = {"id": 1}, {"id": 2}


def row(name: str | None, city: str | None = "Bern") -> dict[str, Any]:
    return {"name": name, "city": city}


def typed(spark: Any, *events: tuple[Any, ...]) -> Any:
    frame = spark.createDataFrame(list(events), EVENTS)
    return cdc.parse(frame, SCHEMA, ["id"], truncates=frame)


def latest(spark: Any, *events: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    found = cdc.latest(typed(spark, *events), "id", "sequence").select("id", "name", "city")
    return sorted(tuple(one) for one in found.collect())


def history(spark: Any, *events: tuple[Any, ...], **options: Any) -> list[tuple[Any, ...]]:
    """id, name, city, and the seconds in which they were valid."""
    found = cdc.history(typed(spark, *events), ["id"], "sequence", "event_time", **options)
    seconds = [f"unix_seconds({column}) - 20000 * 86400" for column in ("valid_from", "valid_to")]
    rows = found.orderBy("id", "sequence").selectExpr("id", "name", "city", *seconds, "is_current")
    return [tuple(one) for one in rows.collect()]


def test_the_last_state_of_rows_that_are_there(spark: Any) -> None:
    assert latest(
        spark,
        event("u", ONE, row("b"), at=5, lsn=10),
        event("r", ONE, row("a"), at=1, lsn=900),
        event("c", TWO, row("x"), at=2),
        event("d", TWO, at=3),
    ) == [(1, "b", "Bern")]


def test_a_key_that_changes_is_a_delete_and_an_insert(spark: Any) -> None:
    moved = [event("d", ONE, at=2, lsn=77), event("c", TWO, row("a"), at=4, lsn=77)]
    assert latest(spark, event("c", ONE, row("a"), at=1), *moved) == [(2, "a", "Bern")]


def test_nothing_is_left_after_a_truncate(spark: Any) -> None:
    before = [event("c", ONE, row("a"), at=1), event("c", TWO, row("b"), at=2), event("t", None, at=3)]
    assert latest(spark, *before) == []
    assert latest(spark, *before, event("c", TWO, row("new"), at=4)) == [(2, "new", "Bern")]


def test_rows_that_sequence_by_does_not_tell_apart_are_chosen_the_same_each_time(spark: Any) -> None:
    rows = [(1, 5, "b", False), (1, 5, "a", False), (1, 5, "c", True)]
    for order in (rows, rows[::-1]):
        frame = spark.createDataFrame(order, "id INT, n INT, v STRING, is_deleted BOOLEAN")
        assert cdc.latest(frame, "id", "n").collect() == []
        assert [one.v for one in cdc.latest(frame, "id", "n", deleted="false").collect()] == ["c"]


def test_each_change_begins_a_state_that_lasts_until_the_next(spark: Any) -> None:
    assert history(
        spark,
        event("c", ONE, row("a"), at=10),
        event("u", ONE, row("b"), at=20),
        event("d", ONE, at=30),
        event("c", ONE, row("b"), at=40),
        event("c", TWO, row("x"), at=5),
    ) == [
        (1, "a", "Bern", 10, 20, False),
        (1, "b", "Bern", 20, 30, False),
        (1, "b", "Bern", 40, None, True),
        (2, "x", "Bern", 5, None, True),
    ]


def test_events_that_change_nothing_begin_no_state(spark: Any) -> None:
    """A snapshot that sends rows again, an update that sets what is set, a value that was not sent."""
    assert history(
        spark,
        event("c", ONE, row("a", None), at=10),
        event("r", ONE, row("a", None), at=20),
        event("u", ONE, row("a", PLACEHOLDER), at=30),
        event("u", ONE, row("a", "Bern"), at=40),
    ) == [(1, "a", None, 10, 40, False), (1, "a", "Bern", 40, None, True)]


def test_two_changes_at_one_moment_are_both_states(spark: Any) -> None:
    assert history(
        spark,
        event("c", ONE, row("a"), at=1, seconds=10),
        event("u", ONE, row("b"), at=2, seconds=10),
        event("u", ONE, row("c"), at=3, seconds=10),
    ) == [(1, "a", "Bern", 10, 10, False), (1, "b", "Bern", 10, 10, False), (1, "c", "Bern", 10, None, True)]


def test_a_clock_that_was_set_back_makes_no_state_end_before_it_begins(spark: Any) -> None:
    rows = spark.createDataFrame(
        [(1, 1, "a", 100, False), (1, 2, "b", 40, False), (1, 3, "c", 120, False)],
        "id INT, n INT, v STRING, at INT, is_deleted BOOLEAN",
    ).withColumnRenamed("n", "sequence")
    found = cdc.history(rows, "id", "sequence", "at").orderBy("sequence").select("v", "valid_from", "valid_to")
    assert [tuple(one) for one in found.collect()] == [("a", 100, 100), ("b", 100, 120), ("c", 120, None)]


def test_ignored_columns_begin_no_state_and_have_the_last_value_of_theirs(spark: Any) -> None:
    events = [
        event("c", ONE, row("a", "Bern"), at=10),
        event("u", ONE, row("a", "Basel"), at=20),
        event("u", ONE, row("b", "Basel"), at=30),
    ]
    wanted = [(1, "a", "Basel", 10, 30, False), (1, "b", "Basel", 30, None, True)]
    assert history(spark, *events, ignored="city") == wanted
    assert history(spark, *events, tracked=["name"]) == wanted
    assert history(spark, *events, tracked=["name", "city"], ignored=["city"]) == wanted


def test_a_truncate_ends_all_states(spark: Any) -> None:
    assert history(spark, event("c", ONE, row("a"), at=10), event("t", None, at=20)) == [
        (1, "a", "Bern", 10, 20, False)
    ]


def test_unknown_columns_are_named(spark: Any) -> None:
    with pytest.raises(InvalidCapture, match="names the column town"):
        history(spark, event("c", ONE, row("a"), at=1), tracked=["town"])


def test_both_are_proven_for_by_key_and_kept_in_every_order(spark: Any) -> None:
    events = [
        event("c", ONE, row("a"), at=1),
        event("c", TWO, row("x"), at=2),
        event("u", ONE, row("b"), at=3),
        event("d", TWO, at=4),
        event("u", ONE, row("b"), at=5),
        event("c", TWO, row("y"), at=6),
    ]
    rows = spark.createDataFrame(typed(spark, *events).toArrow())
    batches = [rows.where("position < 4"), rows.where("position >= 4")]

    def current(events: Any) -> Any:
        return cdc.latest(events, ["id"], "sequence")

    def states(events: Any) -> Any:
        return cdc.history(events, ["id"], "sequence", "event_time", ignored="city")

    assert_incremental(current, batches, refresh=by_key("id"))
    assert_incremental(states, batches, refresh=by_key("id"))
