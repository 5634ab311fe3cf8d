"""Rows of data files, read and written anew as they are: every NULL stays, and every row in its partition.

PyIceberg's own reader and writer bring rows to a schema on their way, and make an empty list of a list of structs that
is NULL. Files that already have the table's columns are read and written without that.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.lake.arrow_scan import keeps_nulls
from icefield.plan.upkeep import LARGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from uuid import UUID

    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table

    Deletes = Mapping[str, Sequence[pa.ChunkedArray]]

#: So many rows of a file can be passed over at once; a reader that looks for a minute of a stream needs no more.
_GROUP = 131_072
#: A file has at most so many bytes, measured in memory, before they are compressed.
_LARGE = 8 * LARGE


def can_be_rewritten(table: Table, task: FileScanTask) -> bool:
    """Whether the rows of a data file can be written anew without changing a value."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import sanitize_column_names

    if task.file.spec_id != table.metadata.default_spec_id or task.file.file_format != "PARQUET":
        return False
    if keeps_nulls(schema_to_pyarrow(table.schema())) and sanitize_column_names(table.schema()) == table.schema():
        return True
    return _has_columns_of(table, task)


def _has_columns_of(table: Table, task: FileScanTask) -> bool:
    """Whether a data file has just the columns that its table has today, so that its rows can be taken as they are."""
    import pyarrow.parquet as pq
    from pyiceberg.io.pyarrow import pyarrow_to_schema
    from pyiceberg.schema import sanitize_column_names

    with table.io.new_input(task.file.file_path).open() as file:
        arrow = pq.read_schema(file)
    try:
        found = pyarrow_to_schema(arrow)
    except ValueError:  # columns without ids
        return False
    return _columns(found) == _columns(sanitize_column_names(table.schema()))


def _columns(schema: Schema) -> list[tuple[int, str, str]]:
    return [(field.field_id, field.name, str(field.field_type)) for field in schema.fields]


def partition_of(file: DataFile) -> tuple[Any, ...]:
    """The values that tell a partition from others."""
    return tuple(file.partition[place] for place in range(len(file.partition)))


def rewritten(table: Table, tasks: Sequence[FileScanTask], number: UUID) -> Iterator[DataFile]:
    """The rows of some files, without those that were deleted, in few new files; `number` names these."""
    counter = itertools.count()
    for _, group in itertools.groupby(tasks, key=lambda task: partition_of(task.file)):
        of_partition = list(group)
        writer = _Writer(table, of_partition[0].file.partition, number, counter)
        rows: list[pa.RecordBatch] = []
        for batch in _rows(table, of_partition):
            rows.append(batch)
            if sum(one.nbytes for one in rows) >= _LARGE:
                yield writer.write(rows)
                rows = []
        if rows:
            yield writer.write(rows)


def _rows(table: Table, tasks: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
    from pyiceberg.io.pyarrow import _read_all_delete_files, schema_to_pyarrow
    from pyiceberg.schema import sanitize_column_names

    schema = schema_to_pyarrow(sanitize_column_names(table.schema()))
    for task in tasks:
        read = _as_it_is if _has_columns_of(table, task) else _brought_to_schema
        for batch in read(table, task, _read_all_delete_files(table.io, [task])):
            yield from _cast(batch, schema)


def _as_it_is(table: Table, task: FileScanTask, deletes: Deletes) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    gone = [chunk for one in deletes.get(task.file.file_path, ()) for chunk in one.chunks]
    missing = pa.chunked_array(gone).cast(pa.int64()).combine_chunks() if gone else None
    with table.io.new_input(task.file.file_path).open() as file:
        first = 0
        for batch in pq.ParquetFile(file).iter_batches(_GROUP):
            places = pa.array(range(first, first + len(batch)), pa.int64())
            first += len(batch)
            yield batch if missing is None else batch.filter(pc.invert(pc.is_in(places, value_set=missing)))


def _brought_to_schema(table: Table, task: FileScanTask, _: Deletes) -> Iterator[pa.RecordBatch]:
    from pyiceberg.io.pyarrow import ArrowScan

    scan = table.scan()
    arrow = ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter, scan.case_sensitive)
    yield from arrow.to_record_batches([task])


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if batch.num_rows:
        yield from pa.Table.from_batches([batch]).rename_columns(schema.names).cast(schema).to_batches()


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes files of one partition."""

    table: Table
    partition: Any
    number: UUID
    counter: Iterator[int]

    def write(self, rows: Sequence[pa.RecordBatch]) -> DataFile:
        import pyarrow as pa
        from pyiceberg.io.fileformat import FileFormatFactory
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.schema import sanitize_column_names
        from pyiceberg.table.locations import load_location_provider

        metadata, schema = self.table.metadata, sanitize_column_names(self.table.schema())
        places = load_location_provider(metadata.location, metadata.properties)
        name = f"00000-{next(self.counter)}-{self.number}.parquet"
        path = places.new_data_location(name, None if self._is_whole else self)  # type: ignore[arg-type]
        file = self.table.io.new_output(path)
        properties = {**metadata.properties, "write.parquet.row-group-limit": str(_GROUP)}
        writer = FileFormatFactory.get(FileFormat.PARQUET).create_writer(file, schema, properties)
        with writer:
            writer.write(pa.Table.from_batches(rows))
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=self.partition,
            file_size_in_bytes=len(file),
            sort_order_id=None,
            spec_id=metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **writer.result().to_serialized_dict(),
        )

    @property
    def _is_whole(self) -> bool:
        return self.table.spec().is_unpartitioned()

    def to_path(self) -> str:
        """The folder of the partition, as PyIceberg asks for it."""
        return self.table.spec().partition_to_path(self.partition, self.table.schema())
