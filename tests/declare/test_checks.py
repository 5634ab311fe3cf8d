"""Checks become Spark SQL with names people can read."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from icefield.declare import (
    FreshWithin,
    Reconciles,
    References,
    RowCheck,
    Unique,
    between,
    expect,
    expect_table,
    fresh_within,
    not_null,
    one_of,
    reconciles,
    references,
    unique,
)
from icefield.declare.checks import flatten
from icefield.declare.literals import sql_literal
from icefield.errors import InvalidOption


def test_not_null_gives_each_column_a_reason_of_its_own() -> None:
    checks = flatten((not_null("a", "b", otherwise="drop"), not_null("c")))
    assert [(c.name, c.otherwise) for c in checks] == [
        ("a is not null", "drop"),
        ("b is not null", "drop"),
        ("c is not null", None),
    ]
    assert [c.predicate for c in checks if isinstance(c, RowCheck)] == [
        "`a` IS NOT NULL",
        "`b` IS NOT NULL",
        "`c` IS NOT NULL",
    ]


def test_the_same_check_written_twice_counts_once() -> None:
    assert len(flatten((not_null("a", "b"), not_null("a")))) == 2


def test_one_of_is_membership_so_null_fails() -> None:
    check = one_of("status", "completed", "it's")
    assert isinstance(check, RowCheck)
    assert check.name == "status is one of completed, it's"
    assert check.predicate == "`status` IS NOT NULL AND `status` IN ('completed', 'it\\'s')"


def test_one_of_with_none_lets_null_pass() -> None:
    check = one_of("status", "open", None)
    assert isinstance(check, RowCheck)
    assert check.predicate == "`status` IS NULL OR `status` IN ('open')"
    assert check.name == "status is one of open, null"


def test_between_names_both_ends() -> None:
    check = between("amount", 0, Decimal("200.50"))
    assert isinstance(check, RowCheck)
    assert (check.name, check.predicate) == ("amount is between 0 and 200.50", "`amount` BETWEEN 0 AND 200.50")


def test_names_of_table_checks() -> None:
    assert unique("a", "b").name == "a, b is unique"
    assert references("k", to="s.t").name == "k is in s.t"
    assert references("k", to="s.t", of="s.u", where="x > 0").name == "k of s.u where x > 0 is in s.t"
    assert fresh_within("ts", timedelta(days=2)).name == "ts is fresh within 2 days, 0:00:00"


def test_table_checks_know_what_they_name() -> None:
    assert references("k", to="s.t", of="s.u").named_tables == ("s.t", "s.u")
    assert reconciles("r", {"s.a": "sum(x)", "s.b": "sum(y)"}).named_tables == ("s.a", "s.b")
    assert unique("a").named_columns == ("a",)
    assert fresh_within("ts", timedelta(1)).named_columns == ("ts",)
    assert expect("x", "a > 0").named_columns == ()


def test_each_kind_is_a_class_of_its_own() -> None:
    assert isinstance(unique("a"), Unique)
    assert isinstance(references("a", to="s.t"), References)
    assert isinstance(fresh_within("a", timedelta(1)), FreshWithin)
    assert isinstance(reconciles("r", {"s.a": "1", "s.b": "1"}), Reconciles)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "TRUE"),
        (7, "7"),
        (0.1, "0.1D"),
        (Decimal("1E+2"), "100"),
        ("a\\b", "'a\\\\b'"),
        (date(2026, 8, 1), "DATE'2026-08-01'"),
        (datetime(2026, 8, 1, 12), "TIMESTAMP'2026-08-01 12:00:00'"),
        (datetime(2026, 8, 1, 12, tzinfo=timezone(timedelta(hours=2))), "TIMESTAMP'2026-08-01 10:00:00'"),
        (datetime(2026, 8, 1, 12, tzinfo=UTC), "TIMESTAMP'2026-08-01 12:00:00'"),
    ],
)
def test_python_values_become_spark_literals(value: object, text: str) -> None:
    assert sql_literal(value) == text


@pytest.mark.parametrize("value", [float("nan"), object(), [1], None])
def test_values_without_a_literal_are_refused(value: object) -> None:
    with pytest.raises(InvalidOption):
        sql_literal(value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: expect("", "a > 0"),
        lambda: expect("name", ""),
        lambda: expect("name", "a > 0", otherwise="quarantin"),  # type: ignore[arg-type]
        lambda: not_null(),
        lambda: one_of("a"),
        lambda: unique(),
        lambda: fresh_within("a", timedelta(0)),
        lambda: fresh_within("a", 3),  # type: ignore[arg-type]
        lambda: reconciles("r", {"s.a": "sum(x)"}),
        lambda: expect_table("n", ""),
    ],
)
def test_a_check_that_says_nothing_is_refused_with_its_line(make: object) -> None:
    with pytest.raises(InvalidOption) as refused:
        make()  # type: ignore[operator]
    assert "test_checks.py:" in refused.value.where
    assert refused.value.remedy


def test_a_misspelt_outcome_is_offered_the_right_one() -> None:
    with pytest.raises(InvalidOption, match="did you mean `quarantine`"):
        expect("x", "a > 0", otherwise="quarantin")  # type: ignore[arg-type]
