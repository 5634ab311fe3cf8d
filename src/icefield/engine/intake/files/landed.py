"""Files that were taken in, as Spark sees them: rows for a function, malformed rows, and the bytes of any row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icefield.engine import limits
from icefield.engine.batch import InFiles, keep, write
from icefield.engine.frames import empty_frame
from icefield.engine.intake.files import undecided
from icefield.engine.intake.files.landing import require_unchanged
from icefield.engine.intake.files.log import taken_files
from icefield.engine.intake.files.raw import RawRows
from icefield.engine.intake.files.schedulers import SparkTasks
from icefield.engine.intake.port import InSpark, Known
from icefield.engine.origin import ARRIVAL, LINE, PROBLEM, RAW, ROW, TRAVELLING
from icefield.engine.sql import quoted
from icefield.lake.int_sets import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession

    from icefield.engine.intake.files.intake import ReceivedFiles
    from icefield.engine.intake.files.reading import Reading


def land(spark: SparkSession, received: ReceivedFiles) -> LandedFiles:
    """Has Spark read what is much, and decide what was left to it, once; all else reads from the scratch folder."""
    reading = received.reading or received.read(SparkTasks(spark))
    source = received.source
    frames = [undecided.lines(spark, source, left) for left in reading.undecided]
    schema = undecided.schema(source)
    exact = write(reduce(lambda a, b: a.unionByName(b), frames), reading.folder / "exact") if frames else None
    if reading.rows.names and exact is None and received.reading is not None and _is_small(reading):
        columns = cast("StructType", StructType.fromDDL(schema))
        rows = keep(spark, columns, reading.rows.batches(), reading.folder / "held").frame
    elif reading.rows.names:
        places = [*reading.rows.paths, *([str(exact.place)] if exact else [])]
        rows = spark.read.schema(schema).parquet(*places)
    else:
        rows = empty_frame(spark, schema) if exact is None else exact.frame
    if exact is not None:
        rows = rows.where(f"{PROBLEM} IS NULL")
    line = _line_in_file(reading)
    names = [column.name for column in source.columns]
    handed = [F.col(LINE).alias(name) if name == "source_line" else F.col(quoted(name)) for name in names]
    return LandedFiles(
        rows=rows.withColumn(LINE, line).select(*handed, *TRAVELLING),
        provenance=tuple(column.name for column in source.provenance),
        received=received,
        reading=reading,
        exact=exact,
    )


def _is_small(reading: Reading) -> bool:
    """Whether the rows can be part of a query's plan."""
    return reading.count <= limits.LIMITS.local_rows


def _line_in_file(reading: Reading) -> Column:
    """The number of a line in its file: that in its split, and those of the splits before it."""
    several = {arrival: file for arrival, file in reading.files.items() if len(file.lines_before) > 1}
    if not several:
        return F.col(LINE)
    before = {(arrival, n): lines for arrival, file in several.items() for n, lines in enumerate(file.lines_before)}
    pairs = ", ".join(f"'{arrival}/{n}', {lines}L" for (arrival, n), lines in before.items())
    split = f"concat({ARRIVAL}, '/', {ROW} DIV {reading.split_bytes})"
    return F.expr(f"{LINE} + coalesce(element_at(map({pairs}), {split}), 0L)")


@dataclass(frozen=True, kw_only=True)  # no slots: what is counted once is kept
class LandedFiles:
    """Files taken in: `exact` are the rows that Spark decided about, which may be malformed as well."""

    rows: DataFrame
    provenance: tuple[str, ...]
    received: ReceivedFiles
    reading: Reading
    exact: InFiles | None = None

    @property
    def _root(self) -> Path:
        return self.received.around.root

    @property
    def on_driver(self) -> bool:
        """Whether threads of the driver have read them."""
        return self.received.reading is not None

    @property
    def count(self) -> int:
        """How many rows were read, malformed ones included."""
        return self.reading.count

    @cached_property
    def malformed(self) -> int:
        """How many of them are malformed."""
        told = [] if self.exact is None else [part[PROBLEM] for part in self.exact.batches([PROBLEM])]
        return self.reading.problems.count() + sum(int(len(problems) - problems.null_count) for problems in told)

    @property
    def cursor(self) -> None:
        """What was planned."""

    def known(self, column: str) -> Known | None:
        """What reading saw of a column, if all lines were read by threads and none was left to Spark."""
        if column not in self.reading.watched or self.exact is not None:
            return None
        found = self.reading.watched[column]
        return Known(repeated=found.repeated, spans=found.spans, values=lambda: self._values(column))

    def _values(self, column: str) -> NDArray[np.int64]:
        parts = self.reading.rows.batches([column])
        found = [part[column].drop_null().cast(pa.int64()).to_numpy() for part in parts]
        return distinct(np.concatenate([np.array([], np.int64), *found]))

    def unreadable(self) -> Iterator[pa.Table]:
        """The malformed rows, in batches: where they stand, their bytes, what is wrong with them."""
        known = [*(name for name in self.provenance if name != "source_line"), *TRAVELLING, RAW, PROBLEM]
        for folder in (self.reading.problems, *filter(None, [self.exact])):
            for lines in folder.batches(known):
                bad = lines.filter(pc.is_valid(lines[PROBLEM]))
                place = bad.column_names.index(LINE)
                numbers = self._lines(bad)
                yield bad.set_column(place, LINE, numbers).append_column("source_line", numbers)

    def _lines(self, rows: pa.Table) -> pa.Array:
        """The numbers of lines in their files."""
        several = {a: file.lines_before for a, file in self.reading.files.items() if len(file.lines_before) > 1}
        if not several:
            return rows[LINE]
        numbers = zip(*(rows[name].to_pylist() for name in TRAVELLING), strict=True)
        found = [
            line + (several[a][offset // self.reading.split_bytes] if a in several else 0)
            for a, offset, line in numbers
        ]
        return pa.array(found, pa.int64())

    @cached_property
    def raw(self) -> RawRows:
        """Gives the bytes of rows, read from their files at the place where they stand."""
        files = {head.arrival: (head.file.path, head.format) for head in self.received.heads}
        return RawRows(str(self._root), self.received.source.encoding, files)

    def in_spark(self) -> InSpark | None:
        """Malformed rows from where they were written; bytes from the files, if Spark's tasks see these."""
        if not self.received.seen_by_workers:
            return None
        known = [*(name for name in self.provenance if name != "source_line"), *TRAVELLING, RAW, PROBLEM]
        places = [*self.reading.problems.paths, *([str(self.exact.place)] if self.exact else [])]
        schema = undecided.schema(self.received.source)
        spark = self.rows.sparkSession
        rows = spark.read.schema(schema).parquet(*places) if places else empty_frame(spark, schema)
        bad = rows.where(f"{PROBLEM} IS NOT NULL").select(*map(quoted, known))
        numbered = bad.withColumn(LINE, _line_in_file(self.reading))
        return InSpark(numbered.withColumn("source_line", F.col(LINE)), self.raw)

    def records(self, run: str) -> list[dict[str, Any]]:
        """What `ops.files` is to remember of the files that were read, or that went."""
        return taken_files(run, self.received.step, self.received.news, self.received.heads, self.reading)

    def require_unchanged(self) -> None:
        """Refuses files that are not what they were when the run looked at them first."""
        require_unchanged(self._root, [head.file for head in self.received.heads])
