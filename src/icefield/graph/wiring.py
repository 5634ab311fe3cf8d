"""From parameters to tables: what each input of a declared function is."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from icefield.declare import ByKey, Files, Full, Jdbc, Keyed, Ref, Source, Table
from icefield.declare.suggest import did_you_mean, nearest
from icefield.errors import CyclicTables, DeclarationError, DuplicateTable, InvalidOption, UnknownInput, UnknownTable
from icefield.graph.nodes import Edge, owner_of, quarantine_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Names:
    """The names a project declares, and what an author may call them by."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self.tables: dict[str, Table] = {}
        self.by_last_part: dict[str, list[str]] = {}
        self.by_function: dict[int, list[str]] = {}
        for table in tables:
            other = self.tables.get(table.name)
            if other is not None:
                raise DuplicateTable(
                    f"{table.name} is declared twice",
                    where=f"{other.location} and {table.location}",
                    remedy="rename or remove one of the two declarations",
                )
            self.tables[table.name] = table
            self.by_last_part.setdefault(table.name.partition(".")[2], []).append(table.name)
            self.by_function.setdefault(id(table.function), []).append(table.name)

    def called(self, word: str, *, other_than: str = "") -> list[str]:
        """The tables a word may mean: by full name, else by last part (a reader never means itself).

        What a table has rejected is meant by its name and `__quarantine`.
        """
        if (owner := owner_of(word)) != word:
            return [quarantine_of(name) for name in self.called(owner)]
        if word in self.tables:
            return [word]
        named = self.by_last_part.get(word, [])
        others = [name for name in named if name != other_than]
        return others or named

    def must_be_declared(self, word: str, what: str, table: Table) -> str:
        """The full name of a table that a check speaks of."""
        found = self.called(word)
        if len(found) == 1:
            return found[0]
        raise UnknownTable(
            f"{what} of {table.name} refers to {word}, which is " + ("ambiguous" if found else "not declared"),
            where=str(table.location),
            remedy=did_you_mean(word, found or self.tables, all_of_them="tables"),
        )


def wire(table: Table, names: Names) -> tuple[Edge, ...]:
    """The edges of a table, one a parameter; whatever cannot be resolved is an error with the edit to make."""
    parameters = table.parameters
    for key in table.inputs:
        if key not in parameters:
            raise UnknownInput(
                f"inputs= of {table.name} contains `{key}`, but the function has no such parameter without a default",
                where=str(table.location),
                remedy=did_you_mean(key, parameters, all_of_them="parameters"),
            )
    edges = tuple(_edge(table, parameter, names) for parameter in parameters)
    if sum(edge.source is not None for edge in edges) > 1:
        raise InvalidOption(
            f"{table.name} reads from more than one source",
            where=str(table.location),
            remedy="give each source its own table and union those",
        )
    _refuse_unread_cursor(table, edges)
    if isinstance(table.refresh, Keyed):
        _refuse_unkeyed_source(table, table.refresh, edges)
    if isinstance(table.refresh, Keyed) and all(edge.lookup for edge in edges):
        raise InvalidOption(
            f"{table.name} is refreshed by key, but all of its inputs are lookups, which have no key",
            where=str(table.location),
            remedy="make at least one input a plain table instead of lookup(...), or declare the table full()",
        )
    return edges


def _refuse_unread_cursor(table: Table, edges: tuple[Edge, ...]) -> None:
    """Rows above a cursor are added to those that were read before, which a table that is computed anew has not."""
    source = next((edge.source for edge in edges if isinstance(edge.source, Jdbc)), None)
    if source is not None and source.grows and isinstance(table.refresh, Full):
        raise InvalidOption(
            f"{table.name} is refreshed in full, but reads {source.relation} by a cursor",
            where=str(table.location),
            remedy="declare refresh=append(), or remove cursor= to read the whole relation whenever it has changed",
        )


def _refuse_unkeyed_source(table: Table, refresh: Keyed, edges: tuple[Edge, ...]) -> None:
    """By which keys the rows of a source leave has to be known from the names of its files alone."""
    source = next((edge.source for edge in edges if edge.source is not None), None)
    if source is None:
        return
    if len(edges) > sum(edge.lookup for edge in edges) + 1:
        raise InvalidOption(
            f"{table.name} is refreshed by key from a source and from tables",
            where=str(table.location),
            remedy="ingest the source in a table of its own and read that table here, or make the tables lookups",
        )
    if isinstance(source, Jdbc) and not source.grows:
        raise InvalidOption(
            f"{table.name} is refreshed by key, but reads {source.relation} whole",
            where=str(table.location),
            remedy="declare refresh=full(): tables that read it still follow only the rows that changed",
        )
    parts = source.parts if isinstance(source, Files) else ()
    if not isinstance(refresh, ByKey) or refresh.expressions or not set(refresh.keys) <= set(parts):
        told = f" (of its path: {', '.join(parts)})" if parts else ""
        raise InvalidOption(
            f"{table.name} reads from a source, which can only be refreshed by parts of the files' path{told}",
            where=str(table.location),
            remedy="ingest the source in a table with append() and read that table here, or name the key in the path:"
            ' files("landing/trips_{month}.csv", ...) and by_key("month")',
        )


def _edge(table: Table, parameter: str, names: Names) -> Edge:
    given = table.inputs.get(parameter)
    if table.source is not None and parameter == table.parameters[0]:
        if given is not None:
            raise InvalidOption(
                f"the first parameter `{parameter}` of {table.name} is set by both source= and inputs=",
                where=str(table.location),
                remedy="keep one of the two",
            )
        return Edge(parameter=parameter, source=table.source)
    if isinstance(given, Source):
        return Edge(parameter=parameter, source=given)
    if isinstance(given, Ref):
        found = _one(table, parameter, given.table, names)
        return Edge(parameter=parameter, table=found, lookup=given.lookup, key=given.key, on=given.on)
    if given is None or isinstance(given, str):
        return Edge(parameter=parameter, table=_one(table, parameter, given or parameter, names))
    return Edge(parameter=parameter, table=_declared_by(table, parameter, given, names))


def _one(table: Table, parameter: str, word: str, names: Names) -> str:
    found = names.called(word, other_than=table.name)
    if [owner_of(name) for name in found] == [table.name]:
        raise self_reference(table)
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownInput(
            f"input `{word}` of {table.name} is ambiguous: {', '.join(found)}",
            where=str(table.location),
            remedy=f'write inputs={{"{parameter}": "{found[0]}"}}',
        )
    near = nearest(word, (name for name in names.tables if name != table.name), 1)
    edit = f' Then write inputs={{"{parameter}": "{near[0]}"}}, or rename the parameter.' if near else ""
    raise UnknownInput(
        f"input `{word}` of {table.name} is not a table in this project",
        where=str(table.location),
        remedy=did_you_mean(word, (n for n in names.tables if n != table.name), all_of_them="tables") + edit,
    )


def _declared_by(table: Table, parameter: str, function: Any, names: Names) -> str:
    found = names.by_function.get(id(function), [])
    if found == [table.name]:
        raise self_reference(table)
    if len(found) == 1:
        return found[0]
    called = getattr(function, "__name__", repr(function))
    raise UnknownInput(
        f"inputs[{parameter!r}] of {table.name} is the function {called}, which declares "
        + (", ".join(found) if found else "no table"),
        where=str(table.location),
        remedy=f'write the table name, as in inputs={{"{parameter}": "{found[0] if found else "schema.table"}"}}',
    )


def self_reference(table: Table) -> DeclarationError:
    """The refusal of a table that reads itself."""
    return CyclicTables(
        f"{table.name} reads itself, so a rebuild would not produce the same rows",
        where=str(table.location),
        remedy="read the table it is built from; append() already keeps the rows of earlier runs",
    )


def topological(inputs: Mapping[str, tuple[str, ...]], tables: Mapping[str, Table]) -> tuple[str, ...]:
    """Inputs before readers, otherwise as declared; a circle is an error that shows it."""
    rank = {name: position for position, name in enumerate(inputs)}
    waiting = {name: len(tables_read) for name, tables_read in inputs.items()}
    readers: dict[str, list[str]] = {name: [] for name in inputs}
    for name, tables_read in inputs.items():
        for read in tables_read:
            readers[read].append(name)
    ready = [rank[name] for name, count in waiting.items() if count == 0]
    names, order = list(inputs), []
    while ready:
        name = names[heappop(ready)]
        order.append(name)
        for reader in readers[name]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heappush(ready, rank[reader])
    left = [name for name in inputs if waiting[name] > 0]
    if left:
        raise _circle(left, inputs, tables)
    return tuple(order)


def _circle(left: list[str], inputs: Mapping[str, tuple[str, ...]], tables: Mapping[str, Table]) -> DeclarationError:
    """Whatever could not be ordered has an input that could not be ordered: following those closes a circle."""
    path = [left[0]]
    while path.count(path[-1]) == 1:
        path.append(next(name for name in inputs[path[-1]] if name in left))
    circle = path[path.index(path[-1]) :][::-1]
    return CyclicTables(
        f"tables depend on each other in a cycle: {' -> '.join(circle)}",
        where=", ".join(str(tables[name].location) for name in circle[:-1]),
        remedy="let one of them read a table further upstream; checks across tables are not edges and may refer to"
        " downstream tables",
    )
