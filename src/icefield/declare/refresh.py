"""How a table follows its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from icefield.declare.registry import caller
from icefield.errors import InvalidOption

#: How two values of a measure become one. `count` merges as `sum` does; `first` and `last` as `min` and `max` of a
#: struct that begins with what they are ordered by.
Merge = Literal["sum", "count", "min", "max", "first", "last"]
_SAME = {"count": "sum", "first": "min", "last": "max"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """How a table follows its inputs; each kind is a subclass and a promise about the function."""

    @property
    def kind(self) -> str:
        """The word for it in plans, listings and the graph's picture."""
        return {"ByKey": "by_key"}.get(type(self).__name__, type(self).__name__.lower())

    @property
    def plain(self) -> Refresh:
        """The same as data alone, as the graph keeps it: functions are found by the table's name."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Incremental(Refresh):
    """A kind that promises something of the function.

    The promise is proven from Spark's plan. `trusted` lets a function pass that the plan cannot tell about; it changes
    no row, so it is no part of the fingerprint.
    """

    trusted: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Append(Incremental):
    """The function of the new rows is added; rows do not depend on one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed(Incremental):
    """The rows of a key depend on the inputs' rows of that key alone; `expressions` say where a key is computed."""

    keys: tuple[str, ...]
    expressions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByKey(Keyed):
    """Rows of changed keys are computed again from the inputs' rows of those keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulate(Keyed):
    """Measures of new rows are merged into what is stored; `finish` turns measures into the published columns."""

    measures: Mapping[str, str]
    finish: Callable[[Any], Any] | None = None

    @property
    def plain(self) -> Refresh:
        return replace(self, finish=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Full(Refresh):
    """Everything is computed again."""


def append(*, trusted: bool = False) -> Refresh:
    """Add the function of the new rows; for functions where each row stands alone.

    `trusted`: take a function that Spark's plan cannot tell about, such as one with `mapInPandas`.
    """
    _must_be_flag("append", trusted)
    return Append(trusted=trusted)


def by_key(*columns: str, trusted: bool = False, **expressions: str) -> Refresh:
    """Compute again the rows of changed keys: `by_key("id")`, or `by_key(day="to_date(sold_at)")` over an input.

    `trusted`: take a function that Spark's plan cannot tell about; it is then tried on your data.
    """
    _must_be_flag("by_key", trusted)
    keys = (*columns, *expressions)
    _must_be_keys("by_key", keys)
    for name, expression in expressions.items():
        if not isinstance(expression, str) or not expression.strip():
            raise InvalidOption(
                f"by_key({name}={expression!r}): a computed key must be Spark SQL over the columns of the inputs",
                where=str(caller()),
                remedy=f'write {name}="to_date(sold_at)", or just "{name}" if the inputs have that column',
            )
    return ByKey(keys=keys, expressions=dict(expressions), trusted=trusted)


def accumulate(
    *keys: str, finish: Callable[[Any], Any] | None = None, trusted: bool = False, **measures: Merge
) -> Refresh:
    """Merge measures of new rows into the stored ones, by key: `accumulate("product_id", sold="sum", last="max")`.

    `trusted`: take a function that Spark's plan cannot tell about; it is then tried on your data.
    """
    _must_be_flag("accumulate", trusted)
    _must_be_keys("accumulate", keys)
    if not measures:
        raise InvalidOption(
            "accumulate() has no measure to merge",
            where=str(caller()),
            remedy='name each column that is not a key and how it merges: accumulate("product_id", sold="sum")',
        )
    for name, merge in measures.items():
        if merge not in get_args(Merge):
            raise InvalidOption(
                f"accumulate({name}={merge!r}): {merge!r} is not a way to merge",
                where=str(caller()),
                remedy=f"write one of {', '.join(get_args(Merge))}; for values that do not merge, use by_key()",
            )
        if name in keys:
            raise InvalidOption(
                f"accumulate() declares {name} both as a key and as a measure",
                where=str(caller()),
                remedy="keep one of the two",
            )
    if finish is not None and not callable(finish):
        raise InvalidOption(
            f"accumulate(finish={finish!r}): finish is not a function",
            where=str(caller()),
            remedy="pass a function that takes the merged measures and returns the table's columns",
        )
    merged = {name: _SAME.get(merge, merge) for name, merge in measures.items()}
    return Accumulate(keys=keys, measures=merged, finish=finish, trusted=trusted)


def full() -> Refresh:
    """Compute the table again from all of its inputs whenever one of them changed."""
    return Full()


def _must_be_flag(kind: str, trusted: object) -> None:
    if not isinstance(trusted, bool):
        raise InvalidOption(
            f"{kind}(trusted={trusted!r}): `trusted` is a reserved word, not a column or measure",
            where=str(caller()),
            remedy=f"write {kind}(..., trusted=True), or rename the column in the function",
        )


def _must_be_keys(kind: str, keys: tuple[str, ...]) -> None:
    if not keys or any(not isinstance(key, str) or not key for key in keys) or len(set(keys)) < len(keys):
        raise InvalidOption(
            f"{kind}() needs at least one key column, and each only once",
            where=str(caller()),
            remedy=f'write {kind}("customer_id"{"" if kind == "by_key" else ", total=" + chr(34) + "sum" + chr(34)})',
        )
