"""A few rows of a branch's tables, read and added by PyIceberg, without a query of Spark's."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.lake import metadata as meta
from icefield.lake import small_files
from icefield.lake.delete_manifests import DeleteManifests
from icefield.lake.int_sets import Marks, Ordered, numbers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import DataScan, Table, Transaction

    from icefield.lake.branch import Branch

#: So many files are read at once.
_FILES = 4
#: A manifest has so many bytes at most.
_MANIFEST = 8_000_000


@contextmanager
def opened(branch: Branch, table: str) -> Iterator[Table]:
    """A table of a branch, as PyIceberg has it."""
    yield branch.pyiceberg().load_table(table)


def some_rows(branch: Branch, table: str, snapshot: int | None, count: int) -> pa.Table:
    """Some rows, any of them."""
    with opened(branch, table) as found:
        return found.scan(snapshot_id=snapshot, limit=count).to_arrow()


def values_among(
    branch: Branch,
    table: str,
    snapshot: int,
    column: str,
    spans: Sequence[tuple[int, int]],
    wanted: Callable[[], NDArray[np.int64]],
) -> pa.Table:
    """Which of some whole numbers a column has; `spans` have all of them, `wanted` gives them, sorted.

    Numbers mostly ascend with time: files that can have none of those that arrive are not even opened, and where there
    is no other file, nobody asks for the numbers. It is read in parts, so that memory does not grow.
    """
    import pyarrow as pa
    from pyiceberg.expressions import AlwaysFalse, And, GreaterThanOrEqual, LessThanOrEqual, Or

    near: BooleanExpression = AlwaysFalse()
    for least, most in spans:
        above, below = GreaterThanOrEqual(column, least), LessThanOrEqual(column, most)  # type: ignore[call-arg,arg-type]
        near = Or(near, And(above, below))
    with opened(branch, table) as found:
        scan = found.scan(row_filter=near, snapshot_id=snapshot, selected_fields=(column,))
        kind, among, seen = _kind(scan, column), None, []
        for part in _parts(found, scan, column):
            if among is None:
                values = wanted()
                among = Marks.of([values]) or Ordered(values)
            seen.append(part.filter(pa.array(among.has(numbers_of(part)))))
        return pa.table({column: pa.chunked_array(seen, kind)})


def _kind(scan: DataScan, column: str) -> pa.DataType:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(scan.projection()).field(column).type


def _parts(table: Table, scan: DataScan, column: str) -> Iterator[pa.Array]:
    """A column of what a scan finds, a few files at a time: PyIceberg's own reader reads all of them ahead."""
    from pyiceberg.io.pyarrow import ArrowScan

    arrow = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter, scan.case_sensitive)
    kind, files = _kind(scan, column), list(scan.plan_files())
    for first in range(0, len(files), _FILES):
        for part in arrow.to_record_batches(files[first : first + _FILES]):
            yield part[column].cast(kind)


def values_missing(branch: Branch, table: str, snapshot: int | None, column: str, wanted: pa.Array) -> pa.Array | None:
    """Those of some different values that a column does not have; None where they are of another type.

    It is read in parts, in the order in which Iceberg lists the files, and only until all of them are found.
    """
    with opened(branch, table) as found:
        scan = found.scan(snapshot_id=snapshot, selected_fields=(column,))
        kind = _kind(scan, column)
        if kind != wanted.type and not (_is_text(kind) and _is_text(wanted.type)):
            return None
        return not_among(wanted.cast(kind), _parts(found, scan, column))


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))  # texts are long ones for PyIceberg


def different(values: pa.ChunkedArray) -> pa.Array:
    """Every value once, without NULL; numbers that lie close together by marks, in a fraction of the time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    present = values.drop_null()
    marks = Marks.of([numbers_of(present)]) if pa.types.is_integer(values.type) else None
    return pc.unique(present) if marks is None else pa.array(marks.numbers).cast(values.type)


def not_among(wanted: pa.Array, parts: Iterable[pa.Array]) -> pa.Array:
    """The values that are in none of the parts; these are looked at one by one, until no value is left."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rest = iter(parts)
    marks = Marks.of([numbers_of(wanted)]) if pa.types.is_integer(wanted.type) else None
    if marks is not None:
        while marks.marks.any() and (part := next(rest, None)) is not None:
            marks.take_out(numbers_of(part.drop_null()))
        return pa.array(marks.numbers).cast(wanted.type)
    while len(wanted) and (part := next(rest, None)) is not None:
        wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=pc.unique(part))))
    return wanted


def columns_of(branch: Branch, table: str, snapshot: int | None, columns: Sequence[str]) -> pa.Table:
    """All values of some columns."""
    with opened(branch, table) as found:
        return found.scan(snapshot_id=snapshot, selected_fields=tuple(columns)).to_arrow().select(list(columns))


@dataclass(frozen=True, slots=True)
class Near:
    """What holds for a column of the rows that are looked for: one of these values, or in one of the spans, or NULL."""

    column: str
    values: tuple[Any, ...] = ()
    spans: tuple[tuple[Any, Any], ...] = ()
    null: bool = False

    def expression(self) -> BooleanExpression:
        """The same for PyIceberg."""
        from pyiceberg.expressions import AlwaysFalse, And, GreaterThanOrEqual, In, IsNull, LessThanOrEqual, Or

        found: BooleanExpression = AlwaysFalse()
        if self.values:
            found = In(self.column, self.values)  # type: ignore[call-arg,arg-type]
        for least, most in self.spans:
            above, below = GreaterThanOrEqual(self.column, least), LessThanOrEqual(self.column, most)  # type: ignore[call-arg,arg-type]
            found = Or(found, And(above, below))
        return Or(found, IsNull(self.column)) if self.null else found  # type: ignore[call-arg,arg-type]


def as_condition(near: Sequence[Near]) -> BooleanExpression:
    """That all of these hold, for PyIceberg."""
    from pyiceberg.expressions import AlwaysTrue, And

    found: BooleanExpression = AlwaysTrue()
    for one in near:
        found = And(found, one.expression())
    return found


def rows_near(
    branch: Branch,
    table: str,
    snapshot: int,
    near: Sequence[Near],
    wanted: Callable[[pa.Table], pa.Array] | None,
    at_most: int,
) -> pa.Table | None:
    """The rows for which all of `near` and `wanted` hold; None where they lie in files of more than so many bytes.

    What is wanted is near: where it is told which rows are, the files alone are chosen by what is near.
    """
    import pyarrow as pa
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow

    with opened(branch, table) as found:
        scan = found.scan(row_filter=as_condition(near), snapshot_id=snapshot)
        files = list(scan.plan_files())
        if sum(task.file.file_size_in_bytes for task in files) > at_most:
            return None
        schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)
        kept = [task for task in files if wanted is not None and small_files.are_kept(task)]
        every = ArrowScan(found.metadata, found.io, scan.projection(), AlwaysTrue(), scan.case_sensitive)
        parts = small_files.rows_of(every, kept, schema)
        arrow = ArrowScan(found.metadata, found.io, scan.projection(), scan.row_filter, scan.case_sensitive)
        others = [task for task in files if task not in kept]
        parts += [pa.Table.from_batches([part]).cast(schema) for part in arrow.to_record_batches(others)]
        chosen = [part if wanted is None else part.filter(wanted(part)) for part in parts if part.num_rows]
        return pa.concat_tables([schema.empty_table(), *chosen])


def columns_added(
    branch: Branch, table: str, start: int, end: int, columns: Sequence[str], count: int, at_most: int | None = None
) -> pa.Table | None:
    """Some columns of the `count` rows that were appended between two snapshots.

    None where other files than theirs have come, too: a compaction writes old rows anew.
    """
    from pyiceberg.io.pyarrow import ArrowScan

    with opened(branch, table) as found:
        old = {task.file.file_path for task in found.scan(snapshot_id=start).plan_files()}
        scan = found.scan(snapshot_id=end, selected_fields=tuple(columns))
        new = [task for task in scan.plan_files() if task.file.file_path not in old]
        if any(task.delete_files for task in new) or sum(task.file.record_count for task in new) != count:
            return None
        if at_most is not None and sum(task.file.file_size_in_bytes for task in new) > at_most:
            return None
        arrow = ArrowScan(found.metadata, found.io, scan.projection(), scan.row_filter, scan.case_sensitive)
        return arrow.to_table(new).select(list(columns))


def can_be_written(rows: pa.Table) -> bool:
    """Whether PyIceberg can write rows: it tells the least and greatest of a column, and Python's years end at 9999."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not keeps_nulls(rows.schema):
        return False
    try:
        for column in rows.columns:
            if pa.types.is_temporal(column.type):
                pc.min_max(column).as_py()
    except (OverflowError, ValueError):
        return False
    return True


def keeps_nulls(schema: pa.Schema) -> bool:
    """Whether PyIceberg keeps every NULL of these columns: it makes an empty list of a list of structs that is NULL."""
    return not any(_may_be_emptied(field.type) for field in schema)


def _may_be_emptied(kind: pa.DataType) -> bool:
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(_may_be_emptied(field.type) for field in kind)
    if pa.types.is_map(kind):
        return pa.types.is_struct(kind.item_type) or _may_be_emptied(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.types.is_struct(kind.value_type) or _may_be_emptied(kind.value_type)
    return False


def distinct_values(branch: Branch, table: str, snapshot: int | None, columns: tuple[str, ...]) -> int:
    """How many different values some columns have; for tables that fit into memory."""
    values = columns_of(branch, table, snapshot, columns)
    return int(values.group_by(list(columns)).aggregate([]).num_rows)


def remove_files_up_to(branch: Branch, table: str, column: str, limit: int) -> None:
    """Takes out files in which no value of a column is above a limit; no row is read."""
    from pyiceberg.expressions.parser import parse

    with (
        opened(branch, table) as found,
        found.transaction() as work,
        work.update_snapshot(snapshot_properties={meta.RUN: branch.run}).delete() as removal,
    ):
        removal.delete_by_predicate(parse(f"{column} <= {limit}"))


def append_rows(branch: Branch, table: str, rows: pa.Table) -> None:
    """Adds rows; their columns are cast to the table's."""
    with opened(branch, table) as found:
        found.append(fitted(rows, found), snapshot_properties={meta.RUN: branch.run})


def overwrite_rows(branch: Branch, table: str, rows: pa.Table) -> None:
    """Replaces all rows by one snapshot: all files go, and one comes."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    with (
        opened(branch, table) as found,
        found.transaction() as work,
        replacement(work, found, {meta.RUN: branch.run}) as replacing,
    ):
        for task in found.scan().plan_files():
            replacing.delete_data_file(task.file)
        for file in _dataframe_to_data_files(
            table_metadata=work.table_metadata,
            df=fitted(rows, found),
            io=found.io,
            write_uuid=replacing.commit_uuid,
        ):
            replacing.append_data_file(file)


def replacement(work: Transaction, table: Table, told: dict[str, str], *, drops_deletes: bool = False) -> Any:
    """A snapshot in which some files take the place of others; all manifests are merged into one.

    PyIceberg's own goes on listing a manifest of removed files for each time that happened. `drops_deletes`: all files
    that had deletes are replaced, so that these can go.
    """
    from pyiceberg.manifest import ManifestContent
    from pyiceberg.table.snapshots import Operation
    from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles

    class Replacing(_OverwriteFiles):
        def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
            data = [one for one in manifests if one.content == ManifestContent.DATA]
            deletes = [one for one in manifests if one.content != ManifestContent.DATA]
            merging = _ManifestMergeManager(
                target_size_bytes=_MANIFEST, min_count_to_merge=2, merge_enabled=True, snapshot_producer=self
            )
            kept = [] if drops_deletes else DeleteManifests(self).merged(deletes, _MANIFEST, 2)
            return [*merging.merge_manifests(data), *kept]

    return Replacing(operation=Operation.OVERWRITE, transaction=work, io=table.io, snapshot_properties=told)


def fitted(rows: pa.Table, table: Table) -> pa.Table:
    """Rows with the columns of a table, in their order and of their types."""
    wanted = table.schema().as_arrow()
    return rows.select(wanted.names).cast(wanted)
