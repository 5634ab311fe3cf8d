"""Rows in Parquet files of a scratch folder, for Arrow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BATCH = 65_536


@dataclass(frozen=True, slots=True)
class Folder:
    """Rows in the Parquet files of a scratch folder, for Arrow; a folder without files has none."""

    place: Path

    def count(self) -> int:
        """How many there are, from the files' footers."""
        return sum(pq.read_metadata(file).num_rows for file in self._files())

    def arrow(self, columns: list[str] | None = None) -> pa.Table:
        """All of them in memory, in the order of `batches`; for what is known to be small."""
        return pa.concat_tables(self.batches(columns))

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """All of them, always in the same order, so many at a time that memory does not grow with their number."""
        for file in self._files():
            with pq.ParquetFile(file) as opened:
                if not opened.metadata.num_rows:  # still tells its columns
                    yield opened.read(columns)
                for batch in opened.iter_batches(_BATCH, columns=columns):
                    yield pa.Table.from_batches([batch])

    def span(self, column: str) -> tuple[Any, Any] | None:
        """Between which two values a column of a plain type lies, from the files' footers.

        None where they do not tell, some values are NULL, or the name could be a path into another column.
        """
        if "." in column:
            return None
        told = [part for file in self._files() for part in _statistics(pq.read_metadata(file), column)]
        if not told or any(part is None or part.null_count != 0 or not part.has_min_max for part in told):
            return None
        try:
            spans = [(part.min, part.max) for part in told if part is not None]
        except (OverflowError, ValueError):  # Python has no year after 9999
            return None
        return min(least for least, _ in spans), max(greatest for _, greatest in spans)

    def _files(self) -> list[Path]:
        return sorted(self.place.rglob("*.parquet"))


def _statistics(footer: pq.FileMetaData, column: str) -> list[pq.Statistics | None]:
    """Of each group of rows."""
    place = next((n for n in range(footer.num_columns) if footer.schema.column(n).path == column), None)
    if place is None:
        return [None]
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return [group.column(place).statistics for group in groups if group.num_rows]
