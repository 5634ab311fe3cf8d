"""Two versions of a table compared: what came, what went, and what sums came to. All rows stay in DuckDB."""

from __future__ import annotations

import re
import tempfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.lake import metadata as meta
from icefield.lake.duckdb_scan import connect, literal, reading, scan
from icefield.lake.manifests import LiveFiles, live_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import duckdb

    from icefield.lake.history import TableVersion
    from icefield.query.pins import Pin

#: Of a column that looks like one of months or days, values are listed if there are no more than these.
FEW = 100
#: So many rows tell whether a column of texts looks so at all.
_LOOKED_AT = 1000
_PERIOD = re.compile(r"\d{4}-\d{2}(-\d{2})?")
_NUMBERS = ("int", "long", "float", "double", "decimal")
_INEXACT = ("float", "double")


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The sum of a column in both versions; None where a version does not have the column, or no value in it."""

    column: str
    before: Any
    after: Any

    @property
    def change(self) -> Any:
        """How much the sum has grown."""
        return None if self.before is None or self.after is None else self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The values that a column of batches, months or days has in both versions, ascending."""

    column: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def added(self) -> tuple[str, ...]:
        """The values that are in the later version alone."""
        return tuple(value for value in self.after if value not in set(self.before))

    @property
    def removed(self) -> tuple[str, ...]:
        """The values that are in the earlier version alone."""
        return tuple(value for value in self.before if value not in set(self.after))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What became of a table between two of its versions; rows are compared as multisets, by all columns."""

    table: str
    before: TableVersion
    after: TableVersion
    rows_before: int
    rows_after: int
    rows_added: int
    rows_removed: int
    columns_added: tuple[str, ...]
    columns_removed: tuple[str, ...]
    totals: tuple[Total, ...]
    present: tuple[Present, ...]

    @property
    def rows_same(self) -> int:
        """The rows that both versions have."""
        return self.rows_before - self.rows_removed


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the versions: how it is read, and its columns by their ids, which stay the same when one is renamed."""

    version: TableVersion
    source: str
    columns: Mapping[int, tuple[str, str]]
    files: LiveFiles

    @classmethod
    def of(cls, pin: Pin, version: TableVersion) -> _Side:
        found = meta.snapshot(pin.metadata, version.snapshot)
        assert found is not None  # histories have no others
        current = version.snapshot == pin.metadata.get("current-snapshot-id")
        schema = pin.metadata["current-schema-id"]
        schema = schema if current else found.get("schema-id", schema)
        fields = next(one["fields"] for one in pin.metadata["schemas"] if one["schema-id"] == schema)
        return cls(
            version=version,
            source=scan(pin.location, None if current else version.snapshot),
            columns={field["id"]: (field["name"], meta.iceberg_type(field["type"])) for field in fields},
            files=live_files(found),
        )

    @property
    def names(self) -> dict[int, str]:
        return {number: name for number, (name, _) in self.columns.items()}

    def has(self, column: str) -> bool:
        return column in self.names.values()


def compare(pin: Pin, before: TableVersion, after: TableVersion, batches: Collection[str] = ()) -> Comparison:
    """Compares two versions of a pinned table; `batches` are columns whose values are batches."""
    with _database() as db, ExitStack() as stack:
        for version in (before, after):
            stack.enter_context(reading(pin.location, pin.metadata, version.snapshot))
        old, new = _Side.of(pin, before), _Side.of(pin, after)
        counts = [int(_row(db, f"SELECT count(*) FROM {side.source}")[0]) for side in (old, new)]
        removed, added = _difference(db, old, new, counts)
        return Comparison(
            table=pin.table,
            before=before,
            after=after,
            rows_before=counts[0],
            rows_after=counts[1],
            rows_added=added,
            rows_removed=removed,
            columns_added=tuple(name for number, name in new.names.items() if number not in old.columns),
            columns_removed=tuple(name for number, name in old.names.items() if number not in new.columns),
            totals=tuple(_totals(db, old, new)),
            present=tuple(_present(db, old, new, batches)),
        )


@contextmanager
def _database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB that puts what does not fit into memory into a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="icefield-") as folder, connect() as db:
        db.execute(f"SET temp_directory = {literal(folder)}")
        yield db


def _difference(db: duckdb.DuckDBPyConnection, old: _Side, new: _Side, counts: list[int]) -> tuple[int, int]:
    """How many rows went and came. Files that both versions have need not be read: whatever is in them is the same."""
    shared = _shared(old, new)
    if not old.files.data - shared:
        return 0, counts[1] - counts[0]
    if not new.files.data - shared:
        return counts[0] - counts[1], 0
    numbers = list(dict.fromkeys([*old.columns, *new.columns]))
    both = " UNION ALL ".join(
        f"SELECT {weight} AS weight, {_listed(side, numbers)} FROM {side.source}{_without(shared)}"
        for side, weight in ((old, -1), (new, 1))
    )
    grouped = f"SELECT sum(weight) AS surplus FROM ({both}) GROUP BY {', '.join(f'c{number}' for number in numbers)}"
    removed, added = _row(
        db,
        "SELECT coalesce(sum(-surplus) FILTER (WHERE surplus < 0), 0), coalesce(sum(surplus) FILTER (WHERE surplus > 0)"
        f", 0) FROM ({grouped})",
    )
    return int(removed), int(added)


def _shared(old: _Side, new: _Side) -> frozenset[str]:
    """The data files of which both versions have the same rows; where rows were deleted in between, that is unknown."""
    if old.files.deletes != new.files.deletes or old.has("filename") or new.has("filename"):
        return frozenset()
    return old.files.data & new.files.data


def _without(files: Collection[str]) -> str:
    return f" WHERE filename NOT IN ({', '.join(map(literal, sorted(files)))})" if files else ""


def _listed(side: _Side, numbers: list[int]) -> str:
    return ", ".join(f"{_quoted(side.names[n]) if n in side.columns else 'NULL'} AS c{n}" for n in numbers)


def _totals(db: duckdb.DuckDBPyConnection, old: _Side, new: _Side) -> Iterator[Total]:
    sums = [_sums(db, side) for side in (old, new)]
    for number in dict.fromkeys([*sums[1], *sums[0]]):
        name = new.names.get(number) or old.names[number]
        yield Total(column=name, before=sums[0].get(number), after=sums[1].get(number))


def _sums(db: duckdb.DuckDBPyConnection, side: _Side) -> dict[int, Any]:
    """The sums of all columns of numbers, in one pass."""
    wanted = {number: column for number, column in side.columns.items() if column[1].startswith(_NUMBERS)}
    if not wanted:
        return {}
    asked = [f"{'fsum' if kind in _INEXACT else 'sum'}({_quoted(name)})" for name, kind in wanted.values()]
    return dict(zip(wanted, _row(db, f"SELECT {', '.join(asked)} FROM {side.source}"), strict=True))


def _present(db: duckdb.DuckDBPyConnection, old: _Side, new: _Side, batches: Collection[str]) -> Iterator[Present]:
    periods = _periods(db, new)
    for name in new.names.values():
        if name in batches:
            yield Present(column=name, before=_values(db, old, name), after=_values(db, new, name))
        elif name in periods:
            before, after = (_values(db, side, name, FEW + 1) for side in (old, new))
            if max(len(before), len(after)) <= FEW and all(map(_PERIOD.fullmatch, (*before, *after))):
                yield Present(column=name, before=before, after=after)


def _periods(db: duckdb.DuckDBPyConnection, side: _Side) -> list[str]:
    """The columns of texts that look like months or days in the first rows."""
    texts = [name for name, kind in side.columns.values() if kind == "string"]
    if not texts:
        return []
    asked = ", ".join(f"bool_and(regexp_full_match({_quoted(n)}, {literal(_PERIOD.pattern)}))" for n in texts)
    listed = ", ".join(map(_quoted, texts))
    found = _row(db, f"SELECT {asked} FROM (SELECT {listed} FROM {side.source} LIMIT {_LOOKED_AT})")
    return [name for name, looks_so in zip(texts, found, strict=True) if looks_so]


def _values(db: duckdb.DuckDBPyConnection, side: _Side, column: str, at_most: int | None = None) -> tuple[str, ...]:
    """The distinct values of a column, some of them where there are more than so many."""
    if not side.has(column):
        return ()
    limit = "" if at_most is None else f" LIMIT {at_most}"
    name = _quoted(column)
    query = f"SELECT DISTINCT CAST({name} AS VARCHAR) FROM {side.source} WHERE {name} IS NOT NULL{limit}"
    return tuple(sorted(value for (value,) in db.execute(query).fetchall()))


def _row(db: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    found = db.execute(query).fetchone()
    assert found is not None
    return tuple(found)


def _quoted(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
