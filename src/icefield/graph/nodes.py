"""The graph of a project's tables as plain data: no functions inside, so that it can be cached and sent anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from icefield.declare import (
    Accumulate,
    Append,
    ByKey,
    Check,
    Column,
    Debezium,
    ExpectTable,
    Files,
    Frames,
    FreshWithin,
    Full,
    Jdbc,
    Kafka,
    Keyed,
    Limit,
    Location,
    Reconciles,
    References,
    Refresh,
    RowCheck,
    Source,
    Unique,
)
from icefield.graph.codec import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


#: What icefield keeps beside a declared table, by the ending of its name.
_BESIDE = ("quarantine", "changes", "state")


#: What is checked of whatever comes from a source, without being declared.
READABLE = "every line can be read"


def quarantine_of(table: str) -> str:
    """Where a table's rows wait that failed a check."""
    return f"{table}__quarantine"


def owner_of(table: str) -> str:
    """The declared table that a quarantine belongs to; any other table itself."""
    return table.removesuffix("__quarantine")


def changes_of(table: str) -> str:
    """Where a table tells what it removed and added."""
    return f"{table}__changes"


def measures_of(table: str) -> str:
    """Where a table keeps measures that its published columns do not show."""
    return f"{table}__state"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """What one parameter of a table's function receives: the rows of a table, or of a source."""

    parameter: str
    table: str | None = None
    source: Source | None = None
    lookup: bool = False
    key: Mapping[str, str] = field(default_factory=dict)
    on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A declared table with everything resolved: its inputs, the outcome of each check, its fingerprints."""

    name: str
    edges: tuple[Edge, ...] = ()
    refresh: Refresh = field(default_factory=Full)
    row_checks: tuple[RowCheck, ...] = ()
    table_checks: tuple[Check, ...] = ()
    columns: tuple[Column, ...] | None = None
    partitioned_by: tuple[str, ...] = ()
    volatile: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    #: Whom to ask about it: e-mail addresses and teams (`team:finance`).
    owners: tuple[str, ...] = ()
    #: How many rows its checks may reject before the run fails.
    max_rejected: Limit | None = None
    #: Columns that used to have another name: new name -> old name.
    renamed: Mapping[str, str] = field(default_factory=dict)
    #: Comments of columns, besides those of `columns`.
    comments: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""
    location: Location = field(default_factory=lambda: Location("", 0))
    fingerprint: str = ""
    checks_fingerprint: str = ""

    @property
    def schema(self) -> str:
        """The first part of its name."""
        return self.name.partition(".")[0]

    @property
    def source(self) -> Source | None:
        """The source it takes rows from, if it has one."""
        return next((edge.source for edge in self.edges if edge.source is not None), None)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which it is refreshed, () where it is not refreshed by key."""
        return self.refresh.keys if isinstance(self.refresh, Keyed) else ()

    @property
    def outcomes(self) -> dict[str, str]:
        """Every check by its name, with what happens where it does not hold; those that nobody declared as well."""
        found = {} if self.source is None else {READABLE: "quarantine"}
        found |= {check.name: str(check.otherwise) for check in (*self.row_checks, *self.table_checks)}
        return found if self.max_rejected is None else {**found, self.rejected_check: "fail"}

    @property
    def rejected_check(self) -> str:
        """The name of the check that no more rows are rejected than may be."""
        return f"at most {self.max_rejected} rejected"

    @property
    def splits_by_unique(self) -> bool:
        """Whether rows leave it because an earlier row has the same key."""
        return any(isinstance(c, Unique) and c.otherwise in ("quarantine", "drop") for c in self.table_checks)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tables it reads, each once, in the order of its parameters; some may be quarantines of others."""
        return tuple(dict.fromkeys(edge.table for edge in self.edges if edge.table is not None))

    @property
    def needs(self) -> tuple[str, ...]:
        """The declared tables that have to be there before it."""
        return tuple(dict.fromkeys(map(owner_of, self.inputs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """All tables of a project; `order` is topological and as stable as the order of declaration allows."""

    nodes: Mapping[str, Node]
    order: tuple[str, ...]

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __contains__(self, name: object) -> bool:
        return name in self.nodes

    def __len__(self) -> int:
        return len(self.nodes)

    def keeps(self, name: str) -> bool:
        """Whether a table is icefield's own: history, or what stands beside a declared table."""
        table, _, ending = name.rpartition("__")
        return name.startswith("ops.") or (ending in _BESIDE and table in self.nodes)

    def upstream(self, names: Iterable[str], depth: int | None = None) -> tuple[str, ...]:
        """Everything the named tables are made from, at most `depth` steps away, without themselves."""
        return self._reach(names, {name: node.needs for name, node in self.nodes.items()}, depth)

    def downstream(self, names: Iterable[str], depth: int | None = None) -> tuple[str, ...]:
        """Everything made from the named tables, at most `depth` steps away, without themselves."""
        return self._reach(names, self.readers(), depth)

    def readers(self) -> dict[str, tuple[str, ...]]:
        """For each table, the tables that read it."""
        found: dict[str, list[str]] = {name: [] for name in self.order}
        for name in self.order:
            for table in self.nodes[name].needs:
                found[table].append(name)
        return {name: tuple(readers) for name, readers in found.items()}

    def followers(self) -> dict[str, tuple[str, ...]]:
        """Tables that have to tell what they removed and added, with those that follow their changes."""
        found = {}
        for name, readers in self.readers().items():
            followers = tuple(
                reader
                for reader in readers
                if isinstance(self[reader].refresh, Append | Keyed) and name in self[reader].inputs
            )
            if followers:
                found[name] = followers
        return found

    def with_sources(self, sources: Mapping[str, Source]) -> Graph:
        """The same graph, in which the sources of some tables are others."""
        nodes = {
            name: replace(node, edges=tuple(replace(e, source=sources[name]) if e.source else e for e in node.edges))
            if name in sources
            else node
            for name, node in self.nodes.items()
        }
        return replace(self, nodes=nodes)

    def to_json(self) -> str:
        """The whole graph as JSON text."""
        return encode(self)

    @classmethod
    def from_json(cls, text: str) -> Graph:
        """The graph that `to_json` wrote; anything else is a ValueError."""
        graph = decode(text, SERIALISED)
        if not isinstance(graph, Graph):
            raise ValueError("the text holds no graph")
        return graph

    def _reach(
        self, names: Iterable[str], neighbours: Mapping[str, tuple[str, ...]], depth: int | None
    ) -> tuple[str, ...]:
        start = set(names)
        seen, edge, step = set(start), start, 0
        while edge and (depth is None or step < depth):
            edge = {table for name in edge for table in neighbours[name]} - seen
            seen |= edge
            step += 1
        return tuple(name for name in self.order if name in seen - start)


SERIALISED: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (
        Accumulate,
        Append,
        ByKey,
        Column,
        Debezium,
        Edge,
        ExpectTable,
        Files,
        Frames,
        FreshWithin,
        Full,
        Graph,
        Jdbc,
        Kafka,
        Limit,
        Location,
        Node,
        Reconciles,
        References,
        RowCheck,
        Unique,
    )
}
