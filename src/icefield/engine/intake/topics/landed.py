"""Messages that were taken in, as Spark sees them: rows for a function, malformed ones, and the bytes of any row."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icefield.declare import Kafka, format_columns
from icefield.engine.batch import InFiles, evaluate, write
from icefield.engine.frames import empty_frame
from icefield.engine.intake.files import parse, undecided
from icefield.engine.intake.files.schedulers import SparkTasks, Threads
from icefield.engine.intake.port import InSpark
from icefield.engine.intake.sheets import Sheets
from icefield.engine.intake.topics.intake import KINDS
from icefield.engine.intake.topics.raw import RawMessages, found_among, identities
from icefield.engine.origin import ARRIVAL, IDENTITY, LINE, ORIGIN, PROBLEM, RAW, ROW, TRAVELLING
from icefield.engine.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from icefield.declare import Topics
    from icefield.engine.batch import Batch
    from icefield.engine.intake.port import Known
    from icefield.engine.intake.topics.intake import ReceivedMessages
    from icefield.engine.intake.topics.messages import Decoded


#: Files with bytes of messages: arrival, the first offset, the one after the last, and the path.
Sheeted = tuple[tuple[int, int, int, str], ...]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one kind: in memory, or in files of the scratch folder."""

    tables: list[pa.Table] = field(default_factory=list)
    sheets: Sheets | None = None

    def batches(self) -> Iterator[pa.Table]:
        """All of them, some at a time."""
        yield from self.tables
        if self.sheets is not None and self.sheets.names:
            yield from self.sheets.batches()

    @property
    def count(self) -> int:
        return int(sum(one.num_rows for one in self.tables)) + (0 if self.sheets is None else self.sheets.count())

    def frame(
        self, spark: SparkSession, schema: str, place: Path, at_most: int, bytes_at_most: int = 0
    ) -> DataFrame | None:
        """The same for Spark, None if there are none: few of them as part of the query, many from a file."""
        if self.sheets is not None:
            return spark.read.schema(schema).parquet(*self.sheets.paths) if self.sheets.names else None
        if not self.count:
            return None
        columns = cast("StructType", StructType.fromDDL(schema))
        table = pa.concat_tables(self.tables).combine_chunks().select(columns.names)
        if table.num_rows <= at_most and table.nbytes <= bytes_at_most:
            frame: DataFrame = spark.createDataFrame(table, columns)
            return frame
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, place / "0.parquet", compression="lz4")
        return spark.read.schema(schema).parquet(str(place))


def land(spark: SparkSession, received: ReceivedMessages) -> LandedMessages:
    """Has Spark read what is much, and decide what was left to it, once."""
    around, source = received.around, received.source
    folder = around.scratch / received.node.name / "landed"
    sheets: Sheeted = ()
    if received.decoded is not None:
        found, counts, messages = _in_memory(received.decoded)
    else:
        found, counts, messages, sheets = _by_tasks(spark, received, folder)
    received.require_all_messages(messages)
    schema = f"{format_columns(source.columns)}, {ORIGIN}"
    rows = found["rows"].frame(spark, schema, folder / "rows", around.local_rows, around.local_bytes)
    left = found["undecided"].frame(spark, f"value BINARY, {_provenance(source)}, {ORIGIN}", folder / "left", 0)
    exact = None if left is None else _evaluated(_decided(left, source), folder / "exact", by_tasks=bool(sheets))
    parts = [part for part in (rows, None if exact is None else exact.frame.where(f"{PROBLEM} IS NULL")) if part]
    names = [*(column.name for column in source.columns), *TRAVELLING]
    frames = [part.select(*map(quoted, names)) for part in parts]
    return LandedMessages(
        rows=reduce(lambda a, b: a.unionByName(b), frames) if frames else empty_frame(spark, schema),
        provenance=tuple(column.name for column in source.provenance),
        received=received,
        counts=counts,
        messages=messages,
        problems=found["problems"],
        values=found["values"],
        sheets=sheets,
        exact=exact,
    )


def _evaluated(rows: DataFrame, place: Path, *, by_tasks: bool) -> Batch:
    """Messages that Spark has decided about; in files, where tasks have read them, since tasks look there for bytes."""
    return write(rows, place) if by_tasks else evaluate(rows, place)


def _in_memory(decoded: list[Decoded]) -> tuple[dict[str, _Rows], Counter[int], Counter[int]]:
    counts: Counter[int] = Counter()
    messages: Counter[int] = Counter()
    for one in decoded:
        counts[one.arrival] += sum(table.num_rows for table in (one.rows, one.problems, one.undecided))
        messages[one.arrival] += one.messages
    return {kind: _Rows([getattr(one, kind) for one in decoded]) for kind in KINDS}, counts, messages


def _by_tasks(
    spark: SparkSession, received: ReceivedMessages, folder: Path
) -> tuple[dict[str, _Rows], Counter[int], Counter[int], Sheeted]:
    for kind in KINDS:
        (folder / kind).mkdir(parents=True, exist_ok=True)
    counts: Counter[int] = Counter()
    messages: Counter[int] = Counter()
    written: dict[str, list[str]] = {kind: [] for kind in KINDS}
    places = []
    recording = received.settings.recording
    seen = recording is None or received.around.workers_see(recording)
    scheduler = SparkTasks(spark) if seen else Threads(received.around.pool)
    for done in scheduler.run(received.jobs(folder)):
        about = done.wanted
        messages[about.arrival] += done.messages
        counts[about.arrival] += done.counts["rows"] + done.counts["problems"] + done.counts["undecided"]
        for kind, name in done.files:
            written[kind].append(name)
            if kind == "values":
                places.append((about.arrival, about.start, about.end, str(folder / kind / name)))
    sheets = {kind: Sheets(folder / kind, tuple(sorted(names))) for kind, names in written.items()}
    return {kind: _Rows(sheets=sheets[kind]) for kind in KINDS}, counts, messages, tuple(places)


def _provenance(source: Topics) -> str:
    return format_columns(source.provenance)


def _decided(left: DataFrame, source: Topics) -> DataFrame:
    """Messages that were left to Spark's parser, as rows; NULL values and a problem where they are malformed."""
    assert isinstance(source, Kafka)
    lines = source.as_json_lines
    texts = left.withColumn("value", F.col("value").cast("string"))
    found, wrong = undecided.json_values(texts, lines)
    decided = found.withColumn(PROBLEM, parse.cell_problems(wrong, lines))
    provided = [quoted(column.name) for column in source.provenance]
    raw = F.col("value").cast("binary").alias(RAW)
    return decided.select(*parse.values(source.schema), *provided, ARRIVAL, ROW, LINE, raw, PROBLEM)


@dataclass(frozen=True, kw_only=True)  # no slots: what is counted once is kept
class LandedMessages:
    """Messages taken in: `exact` are those that Spark decided about, which may be malformed as well."""

    rows: DataFrame
    provenance: tuple[str, ...]
    received: ReceivedMessages
    #: How many rows came of each range, and how many messages it has.
    counts: Mapping[int, int]
    messages: Mapping[int, int]
    problems: _Rows
    values: _Rows
    #: Where tasks wrote the bytes of messages, where they have read them.
    sheets: Sheeted = ()
    exact: Batch | None = None

    @property
    def on_driver(self) -> bool:
        """Whether the driver itself has read them."""
        return self.received.decoded is not None

    @property
    def count(self) -> int:
        """How many rows were read, malformed ones included."""
        return sum(self.counts.values())

    @cached_property
    def malformed(self) -> int:
        """How many of them are malformed."""
        told = [] if self.exact is None else [part[PROBLEM] for part in self.exact.batches([PROBLEM])]
        return self.problems.count + sum(int(len(problems) - problems.null_count) for problems in told)

    def unreadable(self) -> Iterator[pa.Table]:
        """The malformed messages, in batches: where they stand, their bytes, what is wrong with them."""
        yield from self.problems.batches()
        if self.exact is not None:
            for part in self.exact.batches([*self.provenance, *TRAVELLING, RAW, PROBLEM]):
                yield part.filter(pc.is_valid(part[PROBLEM]))

    def raw(self, wanted: pa.Table) -> pa.Array:
        """The bytes of messages, by their identities."""
        return self._by_tasks(wanted) if self.sheets else found_among(identities(wanted), self._bytes())

    def _bytes(self) -> Iterator[pa.Table]:
        yield from self.values.batches()
        if self.exact is not None:
            yield from self.exact.batches([*IDENTITY, RAW])

    @property
    def _by_tasks(self) -> RawMessages:
        assert self.exact is None or isinstance(self.exact, InFiles)
        others = () if self.exact is None else tuple(map(str, sorted(self.exact.place.rglob("*.parquet"))))
        return RawMessages(self.sheets, others)

    def in_spark(self) -> InSpark | None:
        """Malformed messages from where tasks wrote them, and the bytes of others; None if the driver has them."""
        if not self.sheets:
            return None
        spark = self.rows.sparkSession
        names = [*self.provenance, *TRAVELLING, RAW, PROBLEM]
        schema = f"{_provenance(self.received.source)}, {ORIGIN}, {RAW} BINARY, {PROBLEM} STRING"
        found = [self.problems.frame(spark, schema, self.received.around.scratch, 0)]
        if self.exact is not None:
            found.append(self.exact.frame.where(f"{PROBLEM} IS NOT NULL"))
        frames = [one.select(*map(quoted, names)) for one in found if one is not None]
        bad = reduce(lambda a, b: a.unionByName(b), frames) if frames else empty_frame(spark, schema)
        return InSpark(bad, self._by_tasks)

    @property
    def cursor(self) -> None:
        """What was planned."""

    def known(self, _column: str) -> Known | None:
        """Nothing was watched."""
        return None

    def records(self, run: str) -> list[dict[str, Any]]:
        """What `ops.offsets` is to remember."""
        return self.received.records(run, self.messages)

    def require_unchanged(self) -> None:
        """A message at an offset never changes, unless its topic was deleted and created again."""
        self.received.require_same_topics()
