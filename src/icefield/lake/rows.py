"""A few rows of a branch's tables, read and added by PyIceberg, without a query of Spark's."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from icefield.lake import metadata as meta
from icefield.lake.ops import open_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyiceberg.table import Table

    from icefield.lake.branch import Branch


@contextmanager
def _opened(branch: Branch, table: str) -> Iterator[Table]:
    catalog = open_catalog(branch)
    try:
        yield catalog.load_table(table)
    finally:
        catalog.close()


def some_rows(branch: Branch, table: str, snapshot: int | None, count: int) -> pa.Table:
    """Some rows, any of them."""
    with _opened(branch, table) as found:
        return found.scan(snapshot_id=snapshot, limit=count).to_arrow()


def values_among(branch: Branch, table: str, snapshot: int, column: str, wanted: NDArray[np.int64]) -> pa.Table:
    """Which of some whole numbers, which are sorted, a column has; read in parts, so that memory does not grow.

    Numbers mostly ascend with time. Few parts can have any of those that arrive, and only these are looked into.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    with _opened(branch, table) as found:
        parts = found.scan(snapshot_id=snapshot, selected_fields=(column,)).to_arrow_batch_reader()
        seen = []
        for part in parts:
            span = pc.min_max(part[column])
            possible = _between(wanted, span["min"].as_py(), span["max"].as_py())
            if len(possible):
                values = pa.array(possible).cast(parts.schema.field(column).type)
                seen.append(part.filter(pc.is_in(part[column], value_set=values)))
        return pa.Table.from_batches(seen, parts.schema)


def _between(ordered: NDArray[np.int64], least: int | None, most: int | None) -> NDArray[np.int64]:
    if least is None or most is None:
        return ordered[:0]
    start, end = ordered.searchsorted(least, "left"), ordered.searchsorted(most, "right")
    return ordered[start:end]


def columns_of(branch: Branch, table: str, snapshot: int | None, columns: Sequence[str]) -> pa.Table:
    """All values of some columns."""
    with _opened(branch, table) as found:
        return found.scan(snapshot_id=snapshot, selected_fields=tuple(columns)).to_arrow().select(list(columns))


def distinct_values(branch: Branch, table: str, snapshot: int | None, columns: tuple[str, ...]) -> int:
    """How many different values some columns have; for tables that fit into memory."""
    values = columns_of(branch, table, snapshot, columns)
    return int(values.group_by(list(columns)).aggregate([]).num_rows)


def remove_files_up_to(branch: Branch, table: str, column: str, limit: int) -> None:
    """Takes out files in which no value of a column is above a limit; no row is read."""
    from pyiceberg.expressions.parser import parse

    with (
        _opened(branch, table) as found,
        found.transaction() as work,
        work.update_snapshot(snapshot_properties={meta.RUN: branch.run}).delete() as removal,
    ):
        removal.delete_by_predicate(parse(f"{column} <= {limit}"))


def append_rows(branch: Branch, table: str, rows: pa.Table) -> None:
    """Adds rows; their columns are cast to the table's."""
    with _opened(branch, table) as found:
        found.append(_fitted(rows, found), snapshot_properties={meta.RUN: branch.run})


def overwrite_rows(branch: Branch, table: str, rows: pa.Table) -> None:
    """Replaces all rows: all files go, and one comes."""
    from pyiceberg.expressions import AlwaysTrue

    written = {meta.RUN: branch.run}
    with _opened(branch, table) as found, found.transaction() as work:
        with work.update_snapshot(snapshot_properties=written).delete() as removal:
            removal.delete_by_predicate(AlwaysTrue())
        work.append(_fitted(rows, found), snapshot_properties=written)


def _fitted(rows: pa.Table, table: Table) -> pa.Table:
    wanted = table.schema().as_arrow()
    return rows.select(wanted.names).cast(wanted)
