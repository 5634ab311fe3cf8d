"""What an input removed and added since a table last read it: in this run, and before, from a table beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from icefield.engine.arrow_rows import difference
from icefield.engine.batch import InMemory
from icefield.engine.refresh.difference import ADDED, CHANGE, REMOVED, net
from icefield.graph import changes_of
from icefield.lake import metadata as meta
from icefield.lake.arrow_scan import remove_files_up_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from icefield.engine.tables import Tables
    from icefield.plan import Range

NUMBER = "_icefield_number"
#: What was told is trimmed where it has more rows than its table and than this, or lies in more files than this.
MANY_ROWS, MANY_FILES = 100_000, 100


@dataclass(frozen=True, slots=True)
class Change:
    """Rows that went and rows that came; equal pairs have cancelled. None: there are none of them."""

    removed: DataFrame | None
    added: DataFrame | None

    @property
    def rows(self) -> list[DataFrame]:
        """Old and new images of every row that changed."""
        return [frame for frame in (self.removed, self.added) if frame is not None]


def change_of(tables: Tables, table: str, wanted: Range) -> Change:
    """What became of an input in a range."""
    if not wanted.changed:
        return Change(None, None)
    if wanted.after is not None and wanted.until is not None:
        told = _told(tables, table, wanted.after, wanted.until)
        sides = {side: told.where(F.col(CHANGE) == side).drop(CHANGE) for side in (REMOVED, ADDED)}
        return Change(sides[REMOVED], sides[ADDED])
    assert wanted.end is not None
    if wanted.start is None:
        return Change(None, tables.read(table, wanted.end))
    return Change(None, tables.read_between(table, wanted.start, wanted.end))


def rows_changed(tables: Tables, table: str, wanted: Range) -> pa.Table | None:
    """Old and new images of every row of an input that changed, in memory; None where they are not there."""
    if wanted.after is not None and wanted.until is not None:
        held = tables.told_rows.get(table) if wanted.until == wanted.after + 1 else None
        if held is None:
            return None
        return held.table.drop_columns([CHANGE, NUMBER])
    if wanted.start is None or wanted.end is None:
        return None
    appended = tables.rows_between(table, wanted.start, wanted.end)
    return None if appended is None else appended.table


def _told(tables: Tables, table: str, after: int, until: int) -> DataFrame:
    now = tables.told.get(table)  # the last one, if it is of this run
    if until == after + 1 and now is not None:
        return now.drop(NUMBER)
    rows = tables.before(changes_of(table))
    rows = rows if now is None else rows.unionByName(now)
    told = rows.where((F.col(NUMBER) > after) & (F.col(NUMBER) <= until)).drop(NUMBER)
    return told if until == after + 1 else net(told)


def numbered(change: DataFrame, number: int) -> DataFrame:
    """A change as the table beside keeps it."""
    return change.withColumn(NUMBER, F.lit(number).cast("bigint"))


def held_difference(before: InMemory, after: InMemory, number: int) -> tuple[InMemory, pa.Array]:
    """What goes and what comes of rows in memory, as the table beside keeps it, and which of the new rows come."""
    gone, came = difference(before.table, after.table)
    sides = [(before.table.filter(gone), REMOVED), (after.table.filter(came), ADDED)]
    told = [rows.append_column(CHANGE, pa.repeat(pa.scalar(side), rows.num_rows)) for rows, side in sides]
    rows = pa.concat_tables(told)
    rows = rows.append_column(NUMBER, pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows))
    schema = StructType([*before.schema, StructField(CHANGE, StringType()), StructField(NUMBER, LongType())])
    return InMemory(before.spark, schema, rows), came


def keep(tables: Tables, table: str, change: DataFrame) -> str:
    """Writes what a table changed into the table beside it, for later runs; its name."""
    name = changes_of(table)
    comment = f"Changelog of {table}: rows added and removed that some downstream table has not read yet."
    # Columns only change with a rebuild, and whoever follows has rebuilt since then, too: nobody needs what was told.
    tables.definitions.ready(name, change.schema, None, comment, remake=True)
    tables.append(name, change)
    return name


def trim(tables: Tables, table: str, rows: int, upto: int) -> bool:
    """Drops what a table of so many rows told up to a number; False where that would not pay yet.

    Each run tells in files of its own, so that whole files go. Where a compaction has mixed them, some rows stay that
    nobody reads.
    """
    told = tables.branch.staged_metadata(changes_of(table))
    assert told is not None
    if meta.total_records(told) <= max(rows, MANY_ROWS) and meta.total_files(told) <= MANY_FILES:
        return False
    remove_files_up_to(tables.branch, changes_of(table), NUMBER, upto)
    return True
