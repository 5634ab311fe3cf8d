"""A DuckDB over one version of the lake: a view for each table, and nothing else within reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.declare.suggest import did_you_mean
from icefield.errors import NoSuchTable
from icefield.lake.duckdb_scan import connect, literal, reading, scan
from icefield.query.overview import NAME as OVERVIEW
from icefield.query.overview import create_overview
from icefield.query.pins import Pin, pin_as_of, pin_branch, pin_now
from icefield.query.result import Result, collect
from icefield.query.statements import explain, meant, require_select

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import duckdb

    from icefield.lake.embedded import EmbeddedLake


class Reader:
    """Queries over pinned versions; whatever is published meanwhile, a reader goes on seeing the same rows."""

    def __init__(self, db: duckdb.DuckDBPyConnection, pins: Mapping[str, Pin], warehouse: Path) -> None:
        self.pins = pins
        self._db = db
        create_views(db, pins)
        _lock(db, warehouse)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def query(self, text: str) -> Result:
        """The rows of one query in DuckDB's SQL."""
        import duckdb

        try:
            require_select(self._db, text)
            return collect(self._db.execute(meant(text)))
        except duckdb.Error as error:
            raise explain(error, [*self.pins, OVERVIEW]) from None

    def table(self, name: str) -> Result:
        """All rows of one table."""
        return self.query(f"SELECT * FROM {quoted(self.pin(name).table)}")

    def count(self, name: str) -> int:
        """The number of rows of one table, counted."""
        return int(self.query(f"SELECT count(*) FROM {quoted(self.pin(name).table)}").rows()[0][0])

    def pin(self, name: str) -> Pin:
        """The version at which a table is read."""
        return find_pin(self.pins, name)

    def close(self) -> None:
        """Lets DuckDB's memory go."""
        self._db.close()


def open_reader(lake: EmbeddedLake, *, as_of: str | None = None, run: str | None = None) -> Reader:
    """A reader of the published lake: as it is now, as a run or a time left it, or as an unpublished run staged it."""
    if run is not None:
        pins = pin_branch(lake, run)
    elif as_of is None:
        pins = pin_now(lake)
    db = connect()
    if run is None and as_of is not None:
        pins = pin_as_of(lake, as_of, lambda runs: _read_runs(db, runs))
    return Reader(db, pins, lake.warehouse)


def find_pin(pins: Mapping[str, Pin], name: str) -> Pin:
    """A table by its name or by a last part that is unique; otherwise an error with suggestions."""
    found = [pin for table, pin in pins.items() if table == name or table.partition(".")[2] == name]
    if len(found) == 1:
        return found[0]
    raise NoSuchTable(
        f"{'several tables are named' if found else 'the lake has no table'} `{name}`",
        remedy=f"write one of {', '.join(p.table for p in found)}"
        if found
        else did_you_mean(name, pins, all_of_them="tables"),
    )


def quoted(table: str) -> str:
    """A table's name for DuckDB's SQL."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))


def create_views(db: duckdb.DuckDBPyConnection, pins: Mapping[str, Pin]) -> None:
    """A view for each table at its pinned version, and `ops.tables` about all of them, in the current database."""
    for schema in sorted({name.split(".")[0] for name in pins}):
        db.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
    for name, pin in pins.items():
        snapshot = None if pin.is_current else pin.snapshot
        with reading(pin.location, pin.metadata, pin.snapshot):
            db.execute(f"CREATE VIEW {quoted(name)} AS SELECT * FROM {scan(pin.location, snapshot)}")
    create_overview(db, pins.values())


def _lock(db: duckdb.DuckDBPyConnection, warehouse: Path) -> None:
    """From here on a query reaches the lake's files and nothing else: no other file, no network, none of our values."""
    db.execute("SET python_enable_replacements = false")
    db.execute(f"SET allowed_directories = [{literal(str(warehouse))}]")
    db.execute("SET enable_external_access = false")
    db.execute("SET lock_configuration = true")


def _read_runs(db: duckdb.DuckDBPyConnection, pin: Pin) -> list[tuple[str, str]]:
    with reading(pin.location, pin.metadata):
        return db.execute(f"SELECT run, status FROM {scan(pin.location)} ORDER BY finished_at, run").fetchall()
