"""Inputs that are more than a table's name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icefield.declare.options import texts
from icefield.declare.registry import caller
from icefield.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Ref:
    """An edge to a table: how its key is found there, or that it is passed whole."""

    table: str
    key: Mapping[str, str] = field(default_factory=dict)
    lookup: bool = False
    on: tuple[str, ...] = ()


def ref(table: str, **key: str) -> Ref:
    """An input by name, and its key where that has another name there: `ref("raw.products", product_id="id")`."""
    _must_name(table, "ref")
    for name, expression in key.items():
        if not isinstance(expression, str) or not expression:
            raise InvalidOption(
                f"ref({table!r}, {name}={expression!r}): the key must be Spark SQL over the columns of {table}",
                where=str(caller()),
                remedy=f'write {name}="column" or {name}="expression"',
            )
    return Ref(table=table, key=dict(key))


def lookup(table: str, on: str | Sequence[str] = ()) -> Ref:
    """An input that is always passed whole; `on` says which keys a changed row of it touches."""
    _must_name(table, "lookup")
    return Ref(table=table, lookup=True, on=(on,) if isinstance(on, str) else texts("on", on))


def _must_name(table: object, function: str) -> None:
    if not isinstance(table, str) or not table:
        raise InvalidOption(
            f"{function}({table!r}) does not name a table",
            where=str(caller()),
            remedy=f'write {function}("schema.table")',
        )
