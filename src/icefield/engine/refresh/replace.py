"""Puts new rows of some keys in place of the old ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from icefield.engine import limits
from icefield.engine.batch import Batch, evaluate
from icefield.engine.iceberg_types import spark_schema
from icefield.engine.refresh.changes import NUMBER
from icefield.engine.refresh.difference import ADDED, CHANGE, REMOVED
from icefield.engine.refresh.keys import KeySet
from icefield.engine.sql import quoted
from icefield.errors import PromiseBroken
from icefield.lake.arrow_scan import can_be_written
from icefield.lake.position_deletes import Bounds, Leaving, replace_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from icefield.engine.tables import Tables
    from icefield.graph import Node

#: A table of fewer rows is written anew: mostly without a query, and nothing to compact.
SMALL_TABLE = 100_000
#: And one of up to ten times as many where what goes and comes is a twentieth: its deletes would be read on and on.
_TIMES, _MANY = 10, 20
#: More partitions than this are not listed in one condition.
_FEW_PARTITIONS = 500


def require_own_keys(node: Node, touched: KeySet, fresh: DataFrame) -> None:
    """A key that was not asked for would be there twice, or go unnoticed."""
    outside = touched.without(fresh).select(*node.keys).limit(1).collect()
    if outside:
        raise PromiseBroken(
            f"the function of {node.name} returns rows with the key {tuple(outside[0])}, which no input row has",
            where=str(node.location),
            remedy="declare rows that do not come from a keyed input (a calendar, a seed) as an input of their own",
        )


def put(tables: Tables, node: Node, total: int, change: Batch, several: Batch | None, scratch: Path) -> tuple[int, int]:
    """Writes the new rows of the keys that changed; how many rows came and went.

    `several` are all rows of the touched keys; None where a key has one row, so that what came is all there is of it.
    """
    sides = change.arrow([CHANGE])[CHANGE]
    came, gone = (int(pc.sum(pc.equal(sides, side)).as_py() or 0) for side in (ADDED, REMOVED))
    if gone:
        changed = KeySet(node.keys, change, came + gone)
        fresh = Came(change) if several is None else Given(several, changed)
        replace_keys(tables, node, node.name, total, changed, fresh, scratch)
    elif came:
        tables.append_stored(node.name, change, [CHANGE, NUMBER])
    return came, gone


@dataclass(frozen=True, slots=True)
class Came:
    """New rows of some keys: those that came by a change."""

    stored: Batch

    @property
    def frame(self) -> DataFrame:
        return self.stored.frame.where(F.col(CHANGE) == ADDED).drop(CHANGE, NUMBER)

    def arrow(self, columns: list[str]) -> pa.Table:
        """Some columns of them in memory."""
        return _told(self.stored, ADDED, columns)


@dataclass(frozen=True, slots=True)
class Went:
    """Rows that went by a change."""

    stored: Batch

    def arrow(self, columns: list[str]) -> pa.Table:
        """Some columns of them in memory."""
        return _told(self.stored, REMOVED, columns)


def _told(change: Batch, what: str, columns: list[str]) -> pa.Table:
    told = change.arrow([CHANGE, *columns])
    return told.filter(pc.equal(told[CHANGE], what)).select(columns)


@dataclass(frozen=True, slots=True)
class Given:
    """New rows of some keys: all that a function gave, or those of the keys that changed."""

    stored: Batch
    keys: KeySet | None = None

    @property
    def frame(self) -> DataFrame:
        return self.stored.frame if self.keys is None else self.keys.restrict(self.stored.frame)

    def arrow(self, columns: list[str]) -> pa.Table:
        """Some columns of them in memory."""
        rows = self.stored.arrow()
        return (rows if self.keys is None else rows.filter(self.keys.among(rows))).select(columns)


def replace_keys(
    tables: Tables, node: Node, table: str, total: int, keys: KeySet, fresh: Came | Given, scratch: Path
) -> None:
    """All rows of these keys go, the given ones come."""
    whole = table == node.name and set(tables.definitions.partitioned_by(table)) == set(node.keys)
    chosen = keys.condition() if whole and keys.count <= _FEW_PARTITIONS else None
    if chosen is not None:
        tables.replace_partitions(table, chosen, fresh.frame.select(*tables.before(table).columns))
    elif total <= SMALL_TABLE or (total <= _TIMES * SMALL_TABLE and keys.count * _MANY >= total):
        _write_anew(tables, table, tables.before(table), keys, fresh)
    else:
        _write_deletes(tables, table, keys, fresh, scratch)


def _write_deletes(tables: Tables, table: str, keys: KeySet, fresh: Came | Given, scratch: Path) -> None:
    """Deletes the rows of some keys in a large table, and appends the new ones; where these are few by one commit."""
    columns = tables.columns(table)
    assert columns is not None
    few = keys.exact and keys.count <= limits.LIMITS.deleted_rows and tables.takes_few(table, fresh.stored)
    rows = fresh.arrow(columns) if few else None
    if _replace_few(tables, table, keys, rows):
        if rows is not None:
            return
    else:
        tables.remove_keys(table, keys, keys.near())
    if rows is None and isinstance(fresh, Came) and tables.takes_few(table, fresh.stored):
        rows = fresh.arrow(columns)
    if rows is not None:
        tables.append_few(table, rows)
    else:
        tables.append_stored(table, evaluate(fresh.frame.select(*map(quoted, columns)), scratch / f"rows-{table}"))


def _replace_few(tables: Tables, table: str, keys: KeySet, rows: pa.Table | None) -> bool:
    """Takes out the rows of some keys by their places, and adds others, without a query; False where Spark has to."""
    metadata, most = tables.branch.staged_metadata(table), limits.LIMITS
    schema = None if metadata is None else spark_schema(metadata)
    if schema is None or not keys.exact or keys.count > most.deleted_rows:
        return False
    leaving = Leaving(columns=keys.names, near=keys.near_columns(schema), among=keys.among)
    coming = to_arrow_schema(schema).empty_table() if rows is None else rows
    return replace_rows(
        tables.branch, table, leaving, coming, Bounds(bytes_read=most.key_bytes, rows=most.deleted_rows)
    )


def _write_anew(tables: Tables, table: str, old: DataFrame, keys: KeySet, fresh: Came | Given) -> None:
    """All rows of a small table, in place of those it has."""
    rows = tables.small_rows(table, old.columns) if keys.plain else None
    if rows is not None:
        stay = rows.filter(pc.invert(keys.among(rows)))
        after = pa.concat_tables([stay, fresh.arrow(old.columns).cast(stay.schema)])
        if can_be_written(after):
            tables.overwrite_few(table, after)
            return
    tables.overwrite(table, keys.without(old).unionByName(fresh.frame.select(*old.columns)))
