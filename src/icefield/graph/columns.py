"""Columns that a declaration names although the table is known not to have them."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING

from icefield.declare import Table, parse_partition
from icefield.declare.suggest import did_you_mean, one_typo_apart
from icefield.errors import DeclarationError, InvalidName, UnknownColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from icefield.graph.nodes import Edge


def refuse_unknown_columns(table: Table, edges: tuple[Edge, ...]) -> None:
    """Raise for a column that cannot be there; where the function may have added it, say nothing."""
    for what, column in _named(table):
        if column.lower().startswith("_icefield"):
            raise InvalidName(
                f"{what} of {table.name} refers to `{column}`, which is reserved by icefield",
                where=str(table.location),
                remedy="use another column: columns beginning with _icefield are never published",
            )
        if table.columns is not None:
            _must_be_in(table, what, column, [c.name for c in table.columns])
            continue
        source = next((edge.source for edge in edges if edge.source is not None), None)
        if source is not None:
            _must_not_be_a_slip(table, what, column, [c.name for c in source.columns])


def _named(table: Table) -> Iterator[tuple[str, str]]:
    for check in table.checks:
        for column in check.named_columns:
            yield f"check `{check.name}`", column.partition(".")[0]
    for part in table.partitioned_by:
        yield f"partitioned_by `{part}`", parse_partition(part).column.partition(".")[0]
    for column in table.volatile:
        yield "volatile=", column


def _must_be_in(table: Table, what: str, column: str, known: list[str]) -> None:
    if column.lower() not in {name.lower() for name in known}:
        raise _unknown(table, what, column, known)


def _must_not_be_a_slip(table: Table, what: str, column: str, known: list[str]) -> None:
    """A function may add any column: only a name one letter off a source's, found nowhere in the code, counts."""
    lower = {name.lower() for name in known}
    if column.lower() in lower or not any(one_typo_apart(column.lower(), name) for name in lower):
        return
    if not any(column in text for text in _texts(table.function)):
        raise _unknown(table, what, column, known)


def _unknown(table: Table, what: str, column: str, known: Iterable[str]) -> DeclarationError:
    return UnknownColumn(
        f"{what} of {table.name} refers to column `{column}`, which the table does not have",
        where=str(table.location),
        remedy=did_you_mean(column, known, all_of_them="columns"),
    )


def _texts(function: object) -> Iterator[str]:
    """Every name and text in the function's code and in the functions it names: where a column could be made."""
    waiting, seen = [function], set()
    while waiting:
        one = waiting.pop()
        target = getattr(one, "__wrapped__", None) or getattr(one, "func", None) or one
        code, space = getattr(target, "__code__", None), getattr(target, "__globals__", {})
        if id(target) in seen or not isinstance(code, CodeType):
            continue
        seen.add(id(target))
        for name in _names_in(code):
            yield name
            value = space.get(name)
            if isinstance(value, str):
                yield value
            elif callable(value) and getattr(value, "__globals__", None) is space:
                waiting.append(value)


def _names_in(code: CodeType) -> Iterator[str]:
    yield from (*code.co_names, *code.co_varnames, *code.co_freevars)
    constants = list(code.co_consts)
    while constants:
        value = constants.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, tuple):
            constants.extend(value)
        elif isinstance(value, CodeType):
            yield from _names_in(value)
