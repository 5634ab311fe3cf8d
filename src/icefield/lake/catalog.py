"""The embedded catalog: Iceberg's JDBC catalog (schema V1) in one SQLite file, shared by Spark, PyIceberg and DuckDB.

Its rows are keyed by catalog name, so a branch of the whole lake is a copy of the lake's rows under another name, and
publishing is one SQL transaction that moves pointers back.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.errors import CatalogBusy, LakeError, LakeNotWritable, Overtaken, RunCleared
from icefield.failpoint import failpoint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

LAKE = "lake"
BUSY_SECONDS = 30
_MARK = ("icefield", "run")
_DEATH = "died:"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS iceberg_tables (
  catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
  metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), iceberg_type VARCHAR(5),
  PRIMARY KEY (catalog_name, table_namespace, table_name));
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
  catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL, property_key VARCHAR(255),
  property_value VARCHAR(1000), PRIMARY KEY (catalog_name, namespace, property_key));
CREATE TABLE IF NOT EXISTS icefield_lake (key VARCHAR(255) PRIMARY KEY, value VARCHAR(1000));
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One pointer to move: from what the run was based on (None: a new table) to what it staged."""

    table: str
    base: str | None
    staged: str


class Catalog:
    """Pointers to table metadata, of the lake and of its branches."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def exists(self) -> bool:
        """Whether it is there and whole: a file alone may be what a process killed while making it left."""
        if not self.path.is_file():
            return False
        with self._reading() as db:
            return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'icefield_lake'").fetchone() is not None

    def create(self, location: str) -> None:
        """Makes the catalog for a lake in this folder, all of it at once, where it is missing."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._write_ahead()
        with self._transaction() as db:
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute("INSERT OR IGNORE INTO icefield_lake VALUES ('location', ?)", (location,))

    def _write_ahead(self) -> None:
        """Lets readers and a writer work at the same time. SQLite does not wait by itself for this one change."""
        give_up = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                with self._connect() as db:
                    db.execute("PRAGMA journal_mode = WAL")
            except CatalogBusy:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.01)
            else:
                return

    @property
    def journal_mode(self) -> str:
        """How SQLite keeps its journal; told by the file itself, which may be of a lake that can only be read."""
        with self.path.open("rb") as file:
            return "wal" if file.read(20)[18:] == b"\x02\x02" else "delete"

    def pointers(self, catalog: str = LAKE) -> dict[str, str]:
        """Every table's current metadata file, as one consistent version of the whole lake."""
        with self._reading() as db:
            rows = db.execute(
                "SELECT table_namespace || '.' || table_name, metadata_location FROM iceberg_tables"
                " WHERE catalog_name = ?",
                (catalog,),
            )
            return dict(rows.fetchall())

    def entry(self, table: str) -> tuple[str, str | None] | None:
        """A published table's current metadata file and the one before it; None where there is no such table."""
        namespace, _, name = table.partition(".")
        with self._reading() as db:
            row = db.execute(
                "SELECT metadata_location, previous_metadata_location FROM iceberg_tables"
                " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
                (LAKE, namespace, name),
            ).fetchone()
        return None if row is None else (str(row[0]), row[1])

    def setting(self, key: str) -> str | None:
        """A fact about the lake itself, such as the folder it was made in."""
        with self._reading() as db:
            row = db.execute("SELECT value FROM icefield_lake WHERE key = ?", (key,)).fetchone()
            return None if row is None else str(row[0])

    def set_setting(self, key: str, value: str) -> None:
        """Stores a fact about the lake itself."""
        with self._connect() as db:
            db.execute("INSERT OR REPLACE INTO icefield_lake VALUES (?, ?)", (key, value))

    # -- branches

    def open_branch(self, branch: str, run: str) -> dict[str, str]:
        """Copies every pointer of the lake under the branch's name, and returns what was pinned."""
        with self._transaction() as db:
            _delete_rows(db, branch)
            db.execute(
                "INSERT INTO iceberg_tables SELECT ?, table_namespace, table_name, metadata_location,"
                " previous_metadata_location, iceberg_type FROM iceberg_tables WHERE catalog_name = ?",
                (branch, LAKE),
            )
            db.execute(
                "INSERT INTO iceberg_namespace_properties SELECT ?, namespace, property_key, property_value"
                " FROM iceberg_namespace_properties WHERE catalog_name = ?",
                (branch, LAKE),
            )
            db.execute("INSERT INTO iceberg_namespace_properties VALUES (?, ?, ?, ?)", (branch, *_MARK, run))
        return self.pointers(branch)

    def add_namespace(self, branch: str, namespace: str) -> None:
        """Makes a schema on a branch, as Iceberg itself records one."""
        with self._transaction() as db:
            _require_branch(db, branch)
            db.execute(
                "INSERT OR IGNORE INTO iceberg_namespace_properties VALUES (?, ?, 'exists', 'true')",
                (branch, namespace),
            )

    def point(self, branch: str, table: str, location: str) -> None:
        """Moves one pointer of a branch; nobody but the branch's owner sees it."""
        namespace, name = table.split(".")
        with self._transaction() as db:
            _require_branch(db, branch)
            db.execute(
                "INSERT INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, 'TABLE') ON CONFLICT DO UPDATE SET"
                " previous_metadata_location = metadata_location, metadata_location = excluded.metadata_location",
                (branch, namespace, name, location),
            )

    def unpoint(self, branch: str, table: str) -> None:
        """Takes a table off a branch."""
        namespace, name = table.split(".")
        with self._connect() as db:
            db.execute(
                "DELETE FROM iceberg_tables WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
                (branch, namespace, name),
            )

    def branches(self) -> dict[str, str]:
        """Every open branch and the run that works on it."""
        with self._reading() as db:
            rows = db.execute(
                "SELECT catalog_name, property_value FROM iceberg_namespace_properties"
                " WHERE namespace = ? AND property_key = ? AND catalog_name <> ?",
                (*_MARK, LAKE),
            )
            return dict(rows.fetchall())

    def drop_branch(self, branch: str, death: tuple[str, int] | None = None) -> bool:
        """Forgets a branch, so that its run can no longer publish; False if there is none (any more).

        `death` is the run and its start, where it is to be recorded as died; it waits here until that is done.
        """
        assert branch != LAKE
        with self._transaction() as db:
            found = _delete_rows(db, branch) > 0
            if found and death is not None:
                run, started_ms = death
                db.execute("INSERT OR IGNORE INTO icefield_lake VALUES (?, ?)", (_DEATH + run, str(started_ms)))
            return found

    def deaths(self) -> dict[str, int]:
        """Runs that died and are not recorded in `ops.runs` yet, with their starts."""
        with self._reading() as db:
            rows = db.execute("SELECT key, value FROM icefield_lake WHERE key LIKE ? || '%'", (_DEATH,))
            return {key.removeprefix(_DEATH): int(value) for key, value in rows.fetchall()}

    def publish(
        self,
        branch: str,
        run: str,
        moves: Mapping[str, Move],
        deaths: Collection[str] = (),
        relied: Mapping[str, str | None] | None = None,
    ) -> None:
        """Moves all pointers in one transaction, or none; the branch is gone afterwards.

        `deaths` are the runs whose end these moves record, `relied` the pointers of tables that are not moved and yet
        have to be what they were. Raises Overtaken when a table was moved by someone else since the branch was opened,
        or a death was recorded by someone else, and RunCleared when the branch itself was cleared away.
        """
        with self._transaction() as db:
            _require_mark(db, branch, run)
            lost = [move.table for move in moves.values() if not _move(db, move)]
            lost += [table for table, base in (relied or {}).items() if _pointer(db, table) != base]
            lost += [f"the record of {dead}" for dead in deaths if not _forget_death(db, dead)]
            if lost:
                raise Overtaken(lost)
            db.execute(
                "INSERT OR IGNORE INTO iceberg_namespace_properties SELECT ?, namespace, property_key, property_value"
                " FROM iceberg_namespace_properties WHERE catalog_name = ? AND namespace <> ?",
                (LAKE, branch, _MARK[0]),
            )
            _delete_rows(db, branch)
            failpoint("publish.before-commit")
        failpoint("publish.before-answer")

    def relocate(self, catalog: str, pointers: Mapping[str, str], *, location: str) -> None:
        """Points every table at its rewritten metadata and notes the lake's new folder, in one transaction."""
        with self._transaction() as db:
            for table, staged in pointers.items():
                namespace, name = table.split(".")
                db.execute(
                    "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = NULL"
                    " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
                    (staged, catalog, namespace, name),
                )
            db.execute("INSERT OR REPLACE INTO icefield_lake VALUES ('location', ?)", (location,))

    # -- connections

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        with self._explaining(), closing(self._open(self.path)) as db:
            yield db

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for reading, which also works where this user may write nothing."""
        with self._explaining():
            with closing(self._open(self.path)) as db:
                if _can_read(db):
                    yield db
                    return
            with self._frozen() as db:
                yield db

    @contextmanager
    def _frozen(self) -> Iterator[sqlite3.Connection]:
        """The catalog without the files that SQLite makes beside it to tell readers and writers of one another.

        They are there while somebody writes, and then they can be read. So nobody does.
        """
        log = Path(f"{self.path}-wal")
        if not log.exists() or not log.stat().st_size:
            with closing(self._open(f"{self.path.absolute().as_uri()}?immutable=1")) as db:
                yield db
            return
        with tempfile.TemporaryDirectory(prefix="icefield-") as folder:  # commits of a process that died are in the log
            copy = Path(folder) / self.path.name
            shutil.copyfile(self.path, copy)
            shutil.copyfile(log, f"{copy}-wal")
            with closing(self._open(copy)) as db:
                yield db

    def _open(self, place: Path | str) -> sqlite3.Connection:
        return sqlite3.connect(place, timeout=BUSY_SECONDS, isolation_level=None, uri=isinstance(place, str))

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turns what SQLite says into an error of ours."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise CatalogBusy(self.path, BUSY_SECONDS) from error
            if _kind(error) == sqlite3.SQLITE_READONLY:
                raise LakeNotWritable(self.path.parent, error) from error
            raise LakeError(
                f"the catalog cannot be used: {error}",
                where=str(self.path),
                remedy="check that the database is intact, that this user can write it and that the disk is not full",
            ) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connect() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                if db.in_transaction:  # on a full disk SQLite has rolled back by itself
                    db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")


def _can_read(db: sqlite3.Connection) -> bool:
    """Whether a connection can read; not so where SQLite must make files first, and may not."""
    try:
        db.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        if _kind(error) not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise
        return False
    return True


def _kind(error: sqlite3.Error) -> int:
    """SQLite's primary code of an error; an extended one says more in its higher bits."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _require_mark(db: sqlite3.Connection, branch: str, run: str) -> None:
    if _run_of(db, branch) != run:
        raise RunCleared(run)


def _require_branch(db: sqlite3.Connection, branch: str) -> None:
    """A row written for a branch that was cleared would be nobody's, for ever."""
    if _run_of(db, branch) is None:
        raise RunCleared(f"of branch {branch}")


def _run_of(db: sqlite3.Connection, branch: str) -> str | None:
    row = db.execute(
        "SELECT property_value FROM iceberg_namespace_properties"
        " WHERE catalog_name = ? AND namespace = ? AND property_key = ?",
        (branch, *_MARK),
    ).fetchone()
    return None if row is None else str(row[0])


def _move(db: sqlite3.Connection, move: Move) -> bool:
    namespace, name = move.table.split(".")
    if move.base is None:
        done = db.execute(
            "INSERT OR IGNORE INTO iceberg_tables VALUES (?, ?, ?, ?, NULL, 'TABLE')",
            (LAKE, namespace, name, move.staged),
        )
    else:
        done = db.execute(
            "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?"
            " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?",
            (move.staged, move.base, LAKE, namespace, name, move.base),
        )
    return done.rowcount == 1


def _pointer(db: sqlite3.Connection, table: str) -> str | None:
    namespace, name = table.split(".")
    found = db.execute(
        "SELECT metadata_location FROM iceberg_tables"
        " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?",
        (LAKE, namespace, name),
    ).fetchone()
    return None if found is None else str(found[0])


def _forget_death(db: sqlite3.Connection, run: str) -> bool:
    return db.execute("DELETE FROM icefield_lake WHERE key = ?", (_DEATH + run,)).rowcount == 1


def _delete_rows(db: sqlite3.Connection, catalog: str) -> int:
    tables = db.execute("DELETE FROM iceberg_tables WHERE catalog_name = ?", (catalog,)).rowcount
    names = db.execute("DELETE FROM iceberg_namespace_properties WHERE catalog_name = ?", (catalog,)).rowcount
    return tables + names
