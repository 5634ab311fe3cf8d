"""Rows of tables that were published before, or appended by this run, read without a query where they can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from icefield.engine.batch import InFiles
from icefield.engine.sql import quoted
from icefield.lake.arrow_scan import (
    values_among,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

    from icefield.engine.tables import Tables


@dataclass(frozen=True, slots=True)
class Published:
    """The rows that a table has already."""

    tables: Tables
    table: str
    snapshot: int
    #: Files whose rows are about to leave.
    without: tuple[str, ...] = ()

    @property
    def rows(self) -> DataFrame:
        rows = self.tables.read(self.table, self.snapshot)
        return rows.where(~F.col("source_file").isin(*self.without)) if self.without else rows

    @property
    def can_be_read(self) -> bool:
        """Whether they can be read without a query."""
        return not self.without and self.tables.can_read(self.table, self.snapshot)

    def among(self, column: str, spans: Sequence[tuple[int, int]], wanted: Callable[[], NDArray[np.int64]]) -> pa.Table:
        """Which of some whole numbers a column has: those that lie in the spans, and that `wanted` gives, sorted."""
        return values_among(self.tables.branch, self.table, self.snapshot, column, spans, wanted)


@dataclass(frozen=True, slots=True)
class Appended(InFiles):
    """Rows that a run has appended to a table, in the table's own files."""

    total: int
    read: Callable[[list[str]], pa.Table | None]

    def count(self) -> int:
        """How many there are, as the table tells."""
        return self.total

    def arrow(self, columns: list[str] | None = None) -> pa.Table:
        """Columns in memory: by their numbers, since in a file of Iceberg's they may have other names."""
        names = self.frame.columns if columns is None else columns
        found = self.read(names)
        return self.frame.select(*map(quoted, names)).toArrow() if found is None else found

    def span(self, column: str) -> tuple[Any, Any] | None:
        """None as well where not all of them are in files of the kind and at the place that are expected."""
        return InFiles.span(self, column) if InFiles.count(self) == self.total else None
