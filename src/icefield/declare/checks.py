"""Statements about rows and tables, and what happens where they do not hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from icefield.declare.limits import Limit, limit_of
from icefield.declare.literals import quoted, shown, sql_literal
from icefield.declare.options import Otherwise, must_be_one_of, texts
from icefield.declare.registry import caller
from icefield.errors import InvalidOption


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A statement; `otherwise` is None where the table's own default applies.

    `at_most`: how many rows may fail before it warns or fails; None: not one.
    """

    name: str
    otherwise: Otherwise | None = None
    at_most: Limit | None = None

    @property
    def outcomes(self) -> tuple[Otherwise, ...]:
        """What may happen where it does not hold: a whole table cannot be quarantined."""
        return ("warn", "fail")

    @property
    def named_columns(self) -> tuple[str, ...]:
        """The columns of its own table that it names outside of SQL text."""
        return ()

    @property
    def named_tables(self) -> tuple[str, ...]:
        """Other tables that it names."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCheck(Check):
    """A Spark SQL predicate over one row, which fails only where it is FALSE."""

    predicate: str
    columns: tuple[str, ...] = ()

    @property
    def outcomes(self) -> tuple[Otherwise, ...]:
        """A single row can also be dropped or set aside."""
        return ("warn", "drop", "quarantine", "fail")

    @property
    def named_columns(self) -> tuple[str, ...]:
        """The columns of a typed check; none for `expect`, whose predicate is SQL."""
        return self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChecks(Check):
    """Several row checks written as one, so that each can be a reason of its own."""

    rows: tuple[RowCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique(Check):
    """No two rows agree in all of the columns; set aside or dropped, the first arrival stays."""

    columns: tuple[str, ...]

    @property
    def outcomes(self) -> tuple[Otherwise, ...]:
        """Later arrivals can be dropped or set aside."""
        return ("warn", "drop", "quarantine", "fail")

    @property
    def named_columns(self) -> tuple[str, ...]:
        """All of its columns."""
        return self.columns


@dataclass(frozen=True, slots=True, kw_only=True)
class References(Check):
    """Every value of a column of `of` (None: the declaring table) occurs in that column of `to`."""

    column: str
    to: str
    of: str | None = None
    where: str = "true"

    @property
    def named_tables(self) -> tuple[str, ...]:
        """Both ends, where they are named."""
        return (self.to,) if self.of is None else (self.to, self.of)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectTable(Check):
    """A Spark SQL aggregate over the whole table, which has to be TRUE."""

    aggregate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshWithin(Check):
    """The newest value of a column is not older than a limit by the clock."""

    column: str
    limit: timedelta

    @property
    def named_columns(self) -> tuple[str, ...]:
        """The column of times."""
        return (self.column,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciles(Check):
    """One amount, worked out from several tables, is the same everywhere."""

    amounts: Mapping[str, str]
    within: float = 0

    @property
    def named_tables(self) -> tuple[str, ...]:
        """Every table that gives an amount."""
        return tuple(self.amounts)


def expect(name: str, predicate: str, otherwise: Otherwise | None = None, *, at_most: int | str | None = None) -> Check:
    """A row check in Spark SQL: `expect("amount is positive", "amount > 0")`; it fails only where FALSE.

    `at_most=100` or `at_most="1%"`: so many rows may fail before the check warns or fails.
    """
    _must_say(name, predicate, "expect", "predicate")
    return RowCheck(name=name, predicate=predicate, otherwise=_outcome(otherwise), at_most=_limit(at_most))


def not_null(*columns: str, otherwise: Otherwise | None = None, at_most: int | str | None = None) -> Check:
    """Each of the columns has a value: `not_null("order_id", "amount")`."""
    outcome, limit = _outcome(otherwise), _limit(at_most)
    rows = tuple(
        RowCheck(
            name=f"{c} is not null",
            predicate=f"{quoted(c)} IS NOT NULL",
            columns=(c,),
            otherwise=outcome,
            at_most=limit,
        )
        for c in _at_least_one(columns, "not_null")
    )
    return rows[0] if len(rows) == 1 else RowChecks(name=", ".join(row.name for row in rows), rows=rows)


def one_of(column: str, *values: object, otherwise: Otherwise | None = None, at_most: int | str | None = None) -> Check:
    """The column is one of the values: `one_of("status", "paid", "open")`; NULL fails unless None is listed."""
    _at_least_one((column,), "one_of")
    listed = ", ".join(sql_literal(value) for value in values if value is not None)
    if not values:
        raise InvalidOption(
            f"one_of({column!r}) lists no values", where=str(caller()), remedy=f'write one_of({column!r}, "a", "b")'
        )
    inside = f"{quoted(column)} IN ({listed})" if listed else "FALSE"
    null = f"{quoted(column)} IS NULL OR " if None in values else f"{quoted(column)} IS NOT NULL AND "
    name = f"{column} is one of {', '.join(shown(value) for value in values)}"
    return RowCheck(
        name=name,
        predicate=null + inside,
        columns=(column,),
        otherwise=_outcome(otherwise),
        at_most=_limit(at_most),
    )


def between(
    column: str,
    low: object,
    high: object,
    otherwise: Otherwise | None = None,
    *,
    at_most: int | str | None = None,
) -> Check:
    """The column lies between two values, both included: `between("rate", 0, 1)`; NULL passes."""
    _at_least_one((column,), "between")
    if isinstance(low, int | float | Decimal) and isinstance(high, int | float | Decimal) and low > high:
        raise InvalidOption(
            f"between({column!r}, {low}, {high}) matches no value: {low} is greater than {high}",
            where=str(caller()),
            remedy=f"write the smaller value first: between({column!r}, {high}, {low})",
        )
    return RowCheck(
        name=f"{column} is between {shown(low)} and {shown(high)}",
        predicate=f"{quoted(column)} BETWEEN {sql_literal(low)} AND {sql_literal(high)}",
        columns=(column,),
        otherwise=_outcome(otherwise),
        at_most=_limit(at_most),
    )


def unique(*columns: str, otherwise: Otherwise | None = None, at_most: int | str | None = None) -> Check:
    """No two rows agree in the columns: `unique("order_id")`; set aside or dropped, the first arrival stays.

    Rows with a NULL in one of the columns are not compared.
    """
    names = _at_least_one(columns, "unique")
    name = f"{', '.join(names)} is unique"
    return Unique(name=name, columns=names, otherwise=_outcome(otherwise), at_most=_limit(at_most))


def references(
    column: str,
    to: str,
    *,
    of: str | None = None,
    where: str = "true",
    otherwise: Otherwise | None = None,
    at_most: int | str | None = None,
) -> Check:
    """Every value occurs in that column of another table: `references("customer_id", to="silver.customers")`."""
    _at_least_one((column,), "references")
    owner = f" of {of}" if of else ""
    condition = "" if where == "true" else f" where {where}"
    name = f"{column}{owner}{condition} is in {to}"
    outcome, limit = _outcome(otherwise), _limit(at_most)
    return References(name=name, column=column, to=to, of=of, where=where, otherwise=outcome, at_most=limit)


def expect_table(name: str, aggregate: str, otherwise: Otherwise | None = None) -> Check:
    """A check of the whole table in Spark SQL: `expect_table("all zones are there", "count(*) >= 260")`."""
    _must_say(name, aggregate, "expect_table", "aggregate")
    return ExpectTable(name=name, aggregate=aggregate, otherwise=_outcome(otherwise))


def fresh_within(column: str, limit: timedelta, otherwise: Otherwise | None = None) -> Check:
    """The newest value is recent by the clock: `fresh_within("ordered_at", timedelta(days=2))`."""
    _at_least_one((column,), "fresh_within")
    if not isinstance(limit, timedelta) or limit <= timedelta(0):
        raise InvalidOption(
            f"fresh_within({column!r}, {limit!r}): the limit is not a positive timedelta",
            where=str(caller()),
            remedy=f'write fresh_within("{column}", timedelta(days=2))',
        )
    name = f"{column} is fresh within {limit}"
    return FreshWithin(name=name, column=column, limit=limit, otherwise=_outcome(otherwise))


def reconciles(
    name: str, amounts: Mapping[str, str], *, within: float = 0, otherwise: Otherwise | None = None
) -> Check:
    """Tables agree on an amount: `reconciles("revenue", {"silver.sales": "sum(paid)", "gold.days": "sum(paid)"})`."""
    if not isinstance(amounts, Mapping) or not amounts or len(amounts) == 1:
        raise InvalidOption(
            f"reconciles({name!r}, ...) compares fewer than two tables",
            where=str(caller()),
            remedy='write {"schema.a": "sum(x)", "schema.b": "sum(y)"}',
        )
    for table, aggregate in amounts.items():
        _must_say(table, aggregate, "reconciles", "aggregate")
    return Reconciles(name=name, amounts=dict(amounts), within=within, otherwise=_outcome(otherwise))


def flatten(checks: tuple[Check, ...]) -> tuple[Check, ...]:
    """The checks one by one, each once."""
    found: list[Check] = []
    for check in checks:
        for one in check.rows if isinstance(check, RowChecks) else (check,):
            if one not in found:
                found.append(one)
    return tuple(found)


def _outcome(otherwise: Otherwise | None) -> Otherwise | None:
    if otherwise is not None:
        must_be_one_of("otherwise", otherwise)
    return otherwise


def _limit(at_most: object) -> Limit | None:
    return limit_of("at_most", at_most)


def _at_least_one(columns: tuple[str, ...], function: str) -> tuple[str, ...]:
    if not columns:
        raise InvalidOption(
            f"{function}() needs at least one column", where=str(caller()), remedy=f'write {function}("column")'
        )
    return texts(function, columns)


def _must_say(name: object, text: object, function: str, what: str) -> None:
    if not isinstance(name, str) or not name.strip() or not isinstance(text, str) or not text.strip():
        raise InvalidOption(
            f"{function}({name!r}, {text!r}) needs a name and a {what}, both strings",
            where=str(caller()),
            remedy=f'write {function}("what should hold", "Spark SQL")',
        )
