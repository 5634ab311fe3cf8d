"""Takes in what was read from files: rows for the author's function, malformed lines, and the bytes of any line."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from icefield.engine.frames import empty_frame
from icefield.engine.intake import formats
from icefield.engine.intake.reading import fetch_raw
from icefield.engine.origin import ARRIVAL, IDENTITY, PROBLEM, RAW, ROW
from icefield.engine.promises.spark_plans import hands_through
from icefield.engine.scratch import Folder, Stored, store
from icefield.engine.sql import quoted
from icefield.lake.numbers import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

    from icefield.declare import Files
    from icefield.engine.intake.landing import Intake
    from icefield.engine.intake.reading import Reading
    from icefield.engine.intake.receive import Received


@dataclass(frozen=True, kw_only=True)  # no slots: what is counted once is kept
class Landed:
    """Lines taken in: `rows` are what the author's function is handed, `problems` malformed lines.

    `exact` are the rows that Spark decided about: they may be malformed as well.
    """

    rows: DataFrame
    problems: Folder
    counts: Mapping[int, int]
    provenance: tuple[str, ...]
    root: Path
    received: Received
    reading: Reading
    exact: Stored | None = None

    @cached_property
    def malformed(self) -> int:
        """How many lines are malformed."""
        told = [] if self.exact is None else [part[PROBLEM] for part in self.exact.batches([PROBLEM])]
        return self.problems.count() + sum(int(len(problems) - problems.null_count) for problems in told)

    def repeated(self, columns: Sequence[str], output: DataFrame) -> NDArray[np.int64] | None:
        """The keys that more than one line has, where reading saw all of them; None where `output` changed them."""
        if len(columns) != 1 or columns[0] not in self.reading.watched or self.exact is not None:
            return None
        return self.reading.watched[columns[0]].repeated if hands_through(self.rows, output, columns[0]) else None

    def values(self, column: str) -> NDArray[np.int64]:
        """The values of a column in all lines that could be read, sorted; only for columns that reading watched."""
        parts = Folder(self.reading.folder / "rows").batches([column])
        found = [part[column].drop_null().cast(pa.int64()).to_numpy() for part in parts]
        return distinct(np.concatenate([np.array([], np.int64), *found]))

    def unreadable(self) -> Iterator[pa.Table]:
        """The malformed lines, in batches: where they stand, their bytes, what is wrong with them."""
        known = [*(name for name in self.provenance if name != "source_line"), *IDENTITY, RAW, PROBLEM]
        for folder in (self.problems, *filter(None, [self.exact])):
            for lines in folder.batches(known):
                yield lines.filter(pc.is_valid(lines[PROBLEM]))

    def raw_of(self, wanted: pa.Table) -> pa.Array:
        """The bytes of rows, wanted by file and line; NULL where a row has none."""
        origin = list(zip(wanted[ARRIVAL].to_pylist(), wanted[ROW].to_pylist(), strict=True))
        found = fetch_raw(self.root, self.received.of_lines(), origin)
        if self.exact is not None:  # rows of Parquet files are no lines: their bytes were kept when they were read
            for part in self.exact.batches([*IDENTITY, RAW]):
                kept = part.filter(pc.and_(pc.is_valid(part[RAW]), pc.is_in(part[ROW], value_set=wanted[ROW])))
                columns = (kept[name].to_pylist() for name in (*IDENTITY, RAW))
                found |= {(arrival, row): raw for arrival, row, raw in zip(*columns, strict=True)}
        return pa.array([found.get(one) for one in origin], pa.binary())


def land(spark: SparkSession, root: Path, source: Files, received: Received) -> Landed:
    """Has Spark decide what was left to it, once; everything after reads from the scratch folder."""
    reading = received.reading
    assert reading is not None
    parquet = [taken for taken in received.intakes if taken.format == "parquet" and taken.file.size]
    frames = [
        *(formats.lines(spark, source, left) for left in reading.undecided),
        *(formats.parquet(spark, root, source, group) for group in _alike(parquet)),
    ]
    schema = formats.schema(source)
    exact = store(reduce(lambda a, b: a.unionByName(b), frames), reading.folder / "exact") if frames else None
    if reading.rows:
        rows = spark.read.schema(schema).parquet(str(reading.folder / "rows"), *([str(exact.place)] if exact else []))
    else:
        rows = empty_frame(spark, schema) if exact is None else exact.frame
    if exact is not None:
        rows = rows.where(f"{PROBLEM} IS NULL")
    handed = [quoted(column.name) for column in source.columns]
    return Landed(
        rows=rows.withColumn("source_line", F.col(ROW)).select(*handed, *IDENTITY),
        problems=Folder(reading.folder / "problems"),
        counts={**reading.counts, **{taken.arrival: _count(root, taken) for taken in parquet}},
        provenance=(*source.parts, "source_file", "source_line", "ingested_at"),
        root=root,
        received=received,
        reading=reading,
        exact=exact,
    )


def _count(root: Path, taken: Intake) -> int:
    return int(pq.read_metadata(root / taken.file.path).num_rows)


def _alike(intakes: Sequence[Intake]) -> list[list[Intake]]:
    """Parquet files that can be read together: those with the same columns."""
    groups: dict[tuple[str, ...], list[Intake]] = {}
    for taken in intakes:
        groups.setdefault(taken.header, []).append(taken)
    return list(groups.values())
