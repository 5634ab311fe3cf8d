"""An aggregate that follows what is appended is the aggregate over all rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from icefield.engine.checks.aggregates import Amounts

pytestmark = pytest.mark.spark

FOLLOW = [
    "count(*)",
    "sum(amount)",
    "sum(n) FILTER (WHERE amount > 1)",
    "count_if(n IS NULL)",
    "max(at) >= min(at) + INTERVAL 2 DAYS",
    "try_cast(substring(right(max(name), 3), 1, 1) AS INT)",
    "max(day) IS NULL OR min(day) < DATE'2026-08-03'",
    "boolean(array_max(array(max(n), 3)) > 3 AND max(n) < 100)",
    "min(name) || ': it''s'",
    "max(day) - INTERVAL 2 DAYS",
    "min(day - INTERVAL 3 DAYS) < max(day) + INTERVAL 1 DAY",
]
DO_NOT = [
    "count(DISTINCT n)",
    "avg(n)",
    "sum(n / 2)",
    "max(at) > current_timestamp()",
    "first(name)",
    "sum(n) + rand()",
]


@pytest.fixture(scope="module")
def parts(spark: Any) -> list[Any]:
    """Three lots of rows that arrive one after the other; the second has none."""
    draw = random.Random(7)
    lots = [40, 0, 25]
    return [
        spark.range(count).selectExpr(
            f"CAST(IF(id % 7 = 3, NULL, (id * {draw.randint(1, 9)}) % 11) AS INT) AS n",
            f"CAST((id - 9) * {draw.randint(1, 9)} / 100 AS DECIMAL(12,2)) AS amount",
            "concat('it''s ', id) AS name",
            "date_add(DATE'2026-08-01', CAST(id % 5 AS INT)) AS day",
            f"TIMESTAMP'2026-08-01 00:00:00' + make_interval(0, 0, 0, 0, CAST(id AS INT), {number}, 0.000001) AS at",
        )
        for number, count in enumerate(lots)
    ]


def _of(rows: Any) -> Callable[[], Any]:
    return lambda: rows


@pytest.mark.parametrize("expression", FOLLOW)
def test_what_follows_is_what_all_rows_give(parts: list[Any], expression: str) -> None:
    so_far, known = parts[0].limit(0), {}
    for number, came in enumerate(parts):
        so_far = so_far.unionByName(came)
        (wanted,) = so_far.selectExpr(expression).first()
        # Rows that were there before are not looked at again: the frame for all of them has none.
        first = Amounts(_of(so_far), known)
        amounts = Amounts(_of(so_far.limit(0)), known, _of(came)) if number else first
        assert amounts.value(expression) == wanted
        known = amounts.found
        assert known


def test_of_what_is_no_aggregate_one_row_is_asked_for(parts: list[Any]) -> None:
    assert Amounts(_of(parts[0])).value("day >= DATE'2026-08-01'") is True
    assert Amounts(_of(parts[1])).value("day >= DATE'2026-08-01'") is None


@pytest.mark.parametrize("expression", DO_NOT)
def test_what_does_not_follow_is_read_again(parts: list[Any], expression: str) -> None:
    amounts = Amounts(_of(parts[0].coalesce(1)), {}, _of(parts[2]))
    amounts.value(expression)
    assert amounts.found == {}
