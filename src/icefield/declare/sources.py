"""Where rows come from: the kinds of sources have this in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from icefield.declare.columns import Column, parse_columns
from icefield.declare.registry import caller
from icefield.errors import InvalidName, InvalidOption

INGESTED_AT = Column("ingested_at", "TIMESTAMP")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where rows come from; each kind is a subclass."""

    schema: tuple[Column, ...]

    @property
    def kind(self) -> str:
        """The word that declares it."""
        return type(self).__name__.lower()

    @property
    def name(self) -> str:
        """How it is shown to people."""
        return self.kind

    @property
    def grows(self) -> bool:
        """Whether rows are only ever added, so that a table that says nothing else appends them."""
        return True

    @property
    def provenance(self) -> tuple[Column, ...]:
        """The columns by which the source itself tells where a row came from."""
        return ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """What the function receives: the declared columns, and where each row came from."""
        return (*self.schema, *self.provenance)

    @property
    def plain(self) -> Source:
        """The same as plain data, without functions of the author."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames(Source):
    """Rows that a function of the author makes; `function` is None where only the declaration matters."""

    function: Callable[[], Any] | None = None

    @property
    def plain(self) -> Source:
        """The same without the function: a graph is plain data."""
        return replace(self, function=None)


def frames(function: Callable[[], Any], *, schema: str) -> Source:
    """Rows made by Python, for tests and small reference data: `frames(lambda: [(1, "a")], schema="id INT, n STRING")`.

    The function takes no arguments and returns a list of tuples or dictionaries, or a pyarrow.Table. Rows that are
    added at the end are new; if earlier rows differ, the table is built again.
    """
    if not callable(function):
        raise InvalidOption(
            f"frames({function!r}) is not a function",
            where=str(caller()),
            remedy="pass a function without arguments that returns rows: frames(lambda: [(1,)], schema=...)",
        )
    return Frames(schema=parse_columns(schema), function=function)


def refuse_clashes(columns: tuple[Column, ...], provided: tuple[str, ...]) -> None:
    """Refuses declared columns that the source itself provides."""
    for column in columns:
        if column.name.lower() in provided:
            raise InvalidName(
                f"column `{column.name}` of the schema is already provided by the source ({', '.join(provided)})",
                where=str(caller()),
                remedy="remove it from the schema, or rename it there and list this name in aliases=",
            )
