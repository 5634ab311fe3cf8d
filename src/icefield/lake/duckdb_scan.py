"""Reads Iceberg tables with DuckDB, from their metadata file: milliseconds, no JVM, no download."""

from __future__ import annotations

import importlib.util
import json
import re
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from icefield.errors import LakeDamaged
from icefield.graph import changes_of
from icefield.graph.news import OffsetRange, RelationRead, TakenFile, unpacked
from icefield.graph.state import Repair
from icefield.lake import metadata as meta
from icefield.lake.manifests import require_manifests
from icefield.lake.metadata import RESTORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import duckdb
    import pyarrow as pa

    from icefield.lake.embedded import EmbeddedLake
    from icefield.lake.metadata import Metadata
    from icefield.plan import Range


_FILE = re.compile(r"""["']((?:file:)?/[^"']+\.(?:parquet|avro|puffin|metadata\.json))["']""")


def connect() -> duckdb.DuckDBPyConnection:
    """An empty DuckDB in memory that can read Iceberg, with the extensions from their wheels."""
    import duckdb

    # The extensions come from pinned wheels beside DuckDB's own, so its signature check, 0.3 s at each start, adds
    # nothing; nobody else gets to load one: `icefield sql` refuses LOAD, and its configuration is locked.
    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    db = duckdb.connect(config={**settings, "allow_unsigned_extensions": "true"})
    load_extensions(db)
    db.execute("SET TimeZone = 'UTC'")
    return db


def load_extensions(db: duckdb.DuckDBPyConnection) -> None:
    """Lets a DuckDB read Iceberg, by the extensions in the wheels beside its own."""
    import duckdb

    for extension in ("avro", "iceberg"):
        spec = importlib.util.find_spec(f"duckdb_extension_{extension}")
        assert spec is not None
        assert spec.origin is not None
        library = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{extension}.duckdb_extension"
        db.execute(f"LOAD {literal(str(library))}")


def damage(error: duckdb.Error, metadata: str = "") -> LakeDamaged | None:
    """DuckDB's error as that of a lake in which a file is gone or cannot be read; None where it is another.

    `metadata` is the table's metadata file, where only one was read: not every message names a file.
    """
    import duckdb

    told = str(error).split("\n", 1)[0]
    found = _FILE.search(told)
    where = found[1] if found else metadata
    if not where or not isinstance(error, duckdb.IOException | duckdb.InvalidInputException):
        return None
    return LakeDamaged(f"a file of the lake cannot be read: {told}", where=where, remedy=RESTORE)


@contextmanager
def reading(metadata: str, content: Metadata | None = None, snapshot: int | None = None) -> Iterator[None]:
    """Says which file is damaged where DuckDB cannot read a table; `content` is its metadata, where at hand."""
    import duckdb

    require_manifests(meta.load(metadata) if content is None else content, snapshot)
    try:
        yield
    except duckdb.Error as error:
        if (found := damage(error, metadata)) is not None:
            raise found from error
        raise


def scan(location: str, snapshot: int | None = None) -> str:
    """SQL that reads a table's metadata file, at a snapshot if one is given."""
    version = "" if snapshot is None else f", snapshot_from_id = {snapshot}"
    return f"iceberg_scan({literal(location)}{version})"


def literal(text: str) -> str:
    """A string for DuckDB's SQL."""
    return "'" + text.replace("'", "''") + "'"


def changed_rows(lake: EmbeddedLake, table: str, wanted: Range) -> int:
    """How many rows came to and went from a table in a range, from metadata, or from what it told."""
    pointers = lake.pointers()
    if wanted.after is None:
        snapshots = meta.between(meta.load(pointers[table]), wanted.start, wanted.end)
        return sum(
            int(one["summary"].get("added-records", 0)) for one in snapshots if one["summary"]["operation"] == "append"
        )
    location = pointers[changes_of(table)]
    with reading(location), connect() as db:
        query = f"SELECT count(*) FROM {scan(location)} WHERE _icefield_number > ? AND _icefield_number <= ?"
        found = db.execute(query, [wanted.after, wanted.until]).fetchone()
    return 0 if found is None else int(found[0])


def taken_files(lake: EmbeddedLake, table: str) -> Sequence[TakenFile]:
    """The files that a table has taken in, in order of arrival, each as it was last seen.

    What was noted before a file was withdrawn is about rows that are no more: it counts from when it came back.
    """
    location = lake.pointers().get("ops.files")
    if location is None:
        return ()
    with reading(location), connect() as db:
        rows = db.execute(
            "WITH noted AS (SELECT *, max(sequence) OVER (PARTITION BY path) AS newest,"
            " coalesce(max(sequence) FILTER (WHERE status = 'withdrawn') OVER (PARTITION BY path), -1) AS went"
            f' FROM {scan(location)} WHERE "table" = ?)'
            " SELECT path, arg_max(size, sequence), arg_max(modified_ns, sequence), arg_max(sha256, sequence),"
            " arg_min(run, sequence), max(sequence), min(epoch_ms(taken_at)), min(arrival), any_value(went = newest)"
            " FROM noted WHERE sequence > went OR (sequence = went AND went = newest) GROUP BY path ORDER BY 8",
            [table],
        ).fetchall()
    return tuple(
        TakenFile(
            path=path,
            size=size,
            modified_ns=ns,
            sha256=digest,
            run=run,
            taken_ms=ms,
            order=order,
            sequence=sequence,
            withdrawn=withdrawn,
        )
        for path, size, ns, digest, run, sequence, ms, order, withdrawn in rows
    )


def taken_ranges(lake: EmbeddedLake, table: str) -> Sequence[OffsetRange]:
    """The ranges of offsets that a table has taken in, in order of arrival."""
    location = lake.pointers().get("ops.offsets")
    if location is None:
        return ()
    with reading(location), connect() as db:
        rows = db.execute(
            "SELECT topic, partition, start_offset, end_offset, arrival, epoch_ms(taken_at), messages"
            f""" FROM {scan(location)} WHERE "table" = ? AND status = 'taken'"""
            " ORDER BY arrival",
            [table],
        ).fetchall()
    return tuple(
        OffsetRange(
            topic=topic, partition=partition, start=start, end=end, arrival=arrival, taken_ms=ms, messages=messages
        )
        for topic, partition, start, end, arrival, ms, messages in rows
    )


def taken_reads(lake: EmbeddedLake, table: str, first: int = 0, last: int | None = None) -> Sequence[RelationRead]:
    """The reads of a relation by its cursor that a table's rows are from, in order of arrival."""
    location = lake.pointers().get("ops.reads")
    if location is None:
        return ()
    with reading(location), connect() as db:
        rows = db.execute(
            f"SELECT arrival, after, upto, epoch_ms(taken_at), late, ties FROM {scan(location)}"
            """ WHERE "table" = $1 AND "cursor" <> '' AND arrival BETWEEN $2 AND $3 ORDER BY arrival""",
            [table, first, 2**62 if last is None else last],
        ).fetchall()
    return tuple(
        RelationRead(arrival=arrival, after=after, upto=upto, taken_ms=ms, late=unpacked(late), ties=unpacked(ties))
        for arrival, after, upto, ms, late, ties in rows
    )


def next_arrival(lake: EmbeddedLake, table: str) -> int:
    """The place in the order of arrival after all that messages of a table, or of one that was dropped, have had."""
    return _next(lake, table, "ops.offsets")


def next_read(lake: EmbeddedLake, table: str) -> int:
    """The number of a table's next read, where a table of that name was dropped before."""
    return _next(lake, table, "ops.reads")


def _next(lake: EmbeddedLake, table: str, record: str) -> int:
    location = lake.pointers().get(record)
    if location is None:
        return 0
    with reading(location), connect() as db:
        found = db.execute(f'SELECT max(arrival) FROM {scan(location)} WHERE "table" = ?', [table]).fetchone()
    return 0 if found is None or found[0] is None else int(found[0]) + 1


def repairs(lake: EmbeddedLake, table: str) -> dict[int, Repair]:
    """What people decided about a table's quarantine, by number, in order."""
    location = lake.pointers().get("ops.repairs")
    if location is None:
        return {}
    with reading(location), connect() as db:
        rows = db.execute(
            f'SELECT number, kind, condition, assign, reason FROM {scan(location)} WHERE "table" = ? ORDER BY number',
            [table],
        ).fetchall()
    return {
        number: Repair(table=table, kind=kind, where=where, assign=tuple(map(tuple, json.loads(assign))), reason=reason)
        for number, kind, where, assign, reason in rows
    }


def repaired(lake: EmbeddedLake, table: str) -> pa.Table | None:
    """The rows that these decisions are about, as number, arrival and line; None where there are none.

    A file that was corrected since has other rows in these lines.
    """
    known = lake.pointers()
    query = _contents(lake)
    if "ops.repaired" not in known or not query:
        return None
    with _reading_of(lake, *_TAKEN, "ops.repaired") as db:
        db.execute(
            f"SELECT number, arrival, line FROM {scan(known['ops.repaired'])} JOIN ({query}) USING (arrival, sha256)"
            ' WHERE "table" = $1',
            [table],
        )
        return db.to_arrow_table()


def contents(lake: EmbeddedLake, table: str) -> dict[int, str]:
    """What tells the content of each file, or the topic of each range, that a table took in, by order of arrival.

    Rows of databases are known by their own digests, whatever read they came with.
    """
    query = _contents(lake)
    if not query:
        return {}
    with _reading_of(lake, *_TAKEN) as db:
        return dict(db.execute(query, [table]).fetchall())


def _contents(lake: EmbeddedLake) -> str:
    """SQL for arrival and content of what a table took in; "" where nothing was."""
    known = lake.pointers()
    found = []
    if "ops.files" in known:
        found.append(
            f'SELECT arrival, arg_max(sha256, sequence) AS sha256 FROM {scan(known["ops.files"])} WHERE "table" = $1'
            " GROUP BY arrival"
        )
    if "ops.offsets" in known:
        found.append(
            f"SELECT arrival, topic_id AS sha256 FROM {scan(known['ops.offsets'])}"
            """ WHERE "table" = $1 AND status = 'taken'"""
        )
    if "ops.reads" in known:
        found.append(f"""SELECT DISTINCT arrival, '' AS sha256 FROM {scan(known["ops.reads"])} WHERE "table" = $1""")
    return " UNION ALL ".join(found)


#: What tables took in.
_TAKEN = ("ops.files", "ops.offsets", "ops.reads")


@contextmanager
def _reading_of(lake: EmbeddedLake, *tables: str) -> Iterator[duckdb.DuckDBPyConnection]:
    known = lake.pointers()
    with ExitStack() as stack:
        for name in tables:
            if name in known:
                stack.enter_context(reading(known[name]))
        yield stack.enter_context(connect())
