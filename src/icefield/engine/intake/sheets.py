"""Parquet files in which intake jobs leave rows, and problems, in a run's scratch folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from icefield.engine.folders import Folder
from icefield.engine.origin import ARRIVAL

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Rows per row group.
_ROW_GROUP = 250_000
#: Columns with few different values in a file.
_REPEATED = ["source_file", "topic", "partition", "ingested_at", ARRIVAL]


@dataclass(frozen=True, slots=True)
class Sheets(Folder):
    """Parquet files in a scratch folder, of the jobs that succeeded: a failed attempt may have left others there."""

    names: tuple[str, ...]

    @property
    def paths(self) -> list[str]:
        """Their paths."""
        return [str(self.place / name) for name in self.names]

    def _files(self) -> list[Path]:
        return [self.place / name for name in self.names]


class Sheet:
    """Writes one Parquet file, which is created with its first rows."""

    def __init__(self, folder: Path, kind: str, name: str) -> None:
        self.kind, self.name = kind, name
        self._path = folder / kind / name
        self._tables: list[pa.Table] = []
        self._count = 0
        self._writer: pq.ParquetWriter | None = None

    def add(self, columns: Mapping[str, pa.Array]) -> None:
        table = pa.table(dict(columns))
        self._tables.append(table)
        self._count += table.num_rows
        if self._count >= _ROW_GROUP:
            self._flush()

    def close(self) -> bool:
        """Writes what is buffered; False if no rows came, and there is no file."""
        if self._tables:
            self._flush()
        if self._writer is None:
            return False
        self._writer.close()
        return True

    def _flush(self) -> None:
        table = pa.concat_tables(self._tables)
        if self._writer is None:
            # Dictionaries only pay for what is the same in all rows of a file: this one lives for a minute.
            self._writer = pq.ParquetWriter(
                self._path, table.schema, compression="lz4", use_dictionary=_REPEATED, write_statistics=False
            )
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._tables, self._count = [], 0
