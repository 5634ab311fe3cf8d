"""Rows of a relation that were taken in: read once by Spark, in the declared types, kept in a scratch folder."""

from __future__ import annotations

import datetime as dt
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from icefield.declare import Files, format_columns
from icefield.engine.batch import InFiles, write
from icefield.engine.frames import empty_frame
from icefield.engine.intake.files import parse
from icefield.engine.intake.port import InSpark
from icefield.engine.intake.relations.clients import open_client
from icefield.engine.intake.relations.dialects import BEFORE, IDENTITY, Span, cell
from icefield.engine.intake.relations.digests import DIGITS, Digest
from icefield.engine.intake.relations.news import TIES, difference
from icefield.engine.intake.relations.placing import ADDED, KNOWN, LATE, TAKEN, Placing, Reads
from icefield.engine.intake.relations.reading import Reader, telling
from icefield.engine.intake.relations.totals import TIE, Reached, Totals, reached
from icefield.engine.intake.relations.values import is_above, refuse_nulls, require_typed, typed
from icefield.engine.intake.topics.raw import RawMessages, found_among, identities
from icefield.engine.origin import ARRIVAL, LINE, ORIGIN, PROBLEM, RAW, ROW, TRAVELLING
from icefield.engine.origin import IDENTITY as ORIGINS
from icefield.engine.sql import quoted, text
from icefield.errors import RowsChanged
from icefield.graph.news import RelationCursor, packed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from icefield.engine.intake.port import Known
    from icefield.engine.intake.relations.intake import ReceivedRelation

#: The digest of a row over the columns that were read before, where those were others.
_FORMER = "_icefield_former"


def land(spark: SparkSession, received: ReceivedRelation) -> LandedRelation:
    """Has Spark read what is wanted, once."""
    source, connection = received.source, received.connection
    upto = received.news.upto
    if received.news.unsure and source.cursor is not None:
        upto = _highest(Reader(spark=spark, connection=connection, source=source), received)
    schema = f"{format_columns(source.columns)}, {ORIGIN}"
    if not _has_work(received, upto):
        return LandedRelation(rows=empty_frame(spark, schema), received=received)
    folder = received.around.scratch / received.node.name / "landed"
    with ExitStack() as open_ones, telling(connection):
        client, setup = None, ""
        if source.cursor is None and source.partitions > 1 and connection.kind != "other":
            # Several connections are to see the rows of one moment.
            client = open_ones.enter_context(open_client(connection))
            setup = open_ones.enter_context(client.snapshot())
        reader = Reader(spark=spark, connection=connection, source=source, setup=setup)
        stored = write(_placed(_typed(reader, received, upto), received), folder)
        found = Totals.of(stored)
        if client is not None and not setup:
            now = client.digest(source.relation, received.names, Span())
            _require_one_moment(received, now == found.rows)
    if received.everything and received.known.follows:
        _require_same(received, found.known)
    names = [quoted(name) for name in (*(column.name for column in source.columns), *TRAVELLING)]
    return LandedRelation(
        rows=stored.frame.where(f"{PROBLEM} IS NULL").select(*names),
        received=received,
        stored=stored,
        totals=found,
        reached=reached(received, found, upto) if found.rows.count or received.everything else None,
    )


def _has_work(received: ReceivedRelation, upto: str) -> bool:
    news = received.news
    if received.source.cursor is None:
        return True
    return bool(upto) and (received.everything or news.unsure or bool(news.rows or news.late))


def _highest(reader: Reader, received: ReceivedRelation) -> str:
    """Up to which value rows are read, where only Spark can ask for it."""
    source, known, zone = received.source, received.known, received.around.zone
    assert source.cursor is not None
    kind = source.type_of(source.cursor)
    found, nulls = reader.highest(source.cursor, kind)
    refuse_nulls(nulls, source.cursor, source.relation, received.where)
    if not found:
        return known.value
    top = require_typed(found, kind, zone, source.cursor, source.relation, received.where)
    if source.lag is not None:
        behind = dt.datetime.fromtimestamp(received.around.started_ms / 1000, dt.UTC) - source.lag
        limit = typed(f"{behind:%Y-%m-%d %H:%M:%S.%f}", kind, "UTC")
        if is_above(top, limit):
            top, found = limit, f"{behind:%Y-%m-%d %H:%M:%S.%f}" + ("" if kind == "TIMESTAMP_NTZ" else "+00:00")
    if known.follows and not is_above(top, typed(known.value, kind, zone)):
        return known.value
    return found


def _require_one_moment(received: ReceivedRelation, same: bool) -> None:  # noqa: FBT001 - a plain fact
    if not same:
        raise RowsChanged(
            f"{received.source.relation} changed while it was read by {received.source.partitions} connections",
            where=received.where,
            remedy="run again; or remove partitions=, so that one connection reads the rows of one moment",
        )


def _require_same(received: ReceivedRelation, found: Digest) -> None:
    """Refuses a rebuild from rows that are not those that were taken in; the plan may have been made before that."""
    if told := difference(received.known, found, received.source.relation):
        table = received.node.name
        raise RowsChanged(
            f"{table} cannot be rebuilt: {told}",
            where=received.where,
            remedy=f"take in what the database has now: icefield run --full-refresh --accept {table} --select {table}",
        )


def _typed(reader: Reader, received: ReceivedRelation, upto: str) -> DataFrame:
    """The rows in the declared types, with digests, bytes and problems, in an order that is always the same."""
    source, known = received.source, received.known
    former = known.columns if known.follows and known.columns != received.names else ()
    kind = source.type_of(source.cursor) if source.cursor is not None else ""
    after = "" if received.everything else known.value
    span = Span(source.cursor or "", kind, after=after, upto=upto, tied=bool(received.news.late))
    raw = reader.rows(received.names, span, former)
    lines = Files(path=source.relation, schema=source.schema, format="csv")
    found = parse.with_values(raw, [cell(number) for number in range(len(source.schema))], lines)
    for number, column in enumerate(source.schema):
        if column.type == "BINARY":
            found = found.withColumn(f"_value_{number}", F.expr(_bytes(f"_cell_{number}")))
    tie = f"{quoted(source.cursor)} <=> CAST({text(upto)} AS {kind})" if source.cursor is not None else "false"
    rows = found.select(
        *parse.values(source.schema),
        F.expr(_digest(IDENTITY)).alias(LINE),
        F.expr(_digest(BEFORE if former else IDENTITY)).alias(_FORMER),
        F.expr(_json(received)).cast("binary").alias(RAW),
        parse.cell_problems(F.when(F.expr("false"), F.lit("")), lines).alias(PROBLEM),
    ).withColumn(TIE, F.expr(tie))
    if reader.dialect is None and source.cursor is not None:
        value = quoted(source.cursor)
        rows = rows.where(f"{value} IS NULL OR {value} <= CAST({text(upto)} AS {kind})")
    order = [F.col(quoted(source.ordered_by)).asc_nulls_first()] if source.ordered_by is not None else []
    return rows.sortWithinPartitions(*order, LINE)


def _bytes(name: str) -> str:
    """SQL for bytes that a database writes as hexadecimal digits behind a mark, or as they are."""
    mark = text("\\x")
    return f"CASE WHEN startswith({name}, {mark}) THEN unhex(substring({name}, 3)) ELSE binary({name}) END"


def _digest(identity: str) -> str:
    return f"CAST(conv(substring({identity}, 1, {DIGITS}), 16, 10) AS BIGINT)"


def _json(received: ReceivedRelation) -> str:
    """SQL for a row as JSON, every value as the text that the database wrote."""
    parts = [f"{cell(number)} AS {quoted(name)}" for number, name in enumerate(received.names)]
    return f"to_json(struct({', '.join(parts)}), map('ignoreNullFields', 'false'))"


def _placed(rows: DataFrame, received: ReceivedRelation) -> DataFrame:
    """The rows with their place in the order of arrival; without those that were taken in before, if they are new."""
    source, known, around = received.source, received.known, received.around
    arrival = known.arrivals if source.cursor is not None else 0
    if known.follows and received.reads:
        assert source.cursor is not None
        kind = source.type_of(source.cursor)
        placing = Placing(
            value=source.cursor,
            digest=_FORMER,
            last=typed(known.value, kind, around.zone),
            ties=received.reads[-1].ties if known.tied <= TIES else None,
            reads=Reads.of(received.reads, kind, around.zone),
            arrival=arrival,
            taken_ms=around.started_ms,
            everything=received.everything,
        )
        added = [StructField(name, LongType()) for name in ADDED]
        rows = rows.mapInArrow(placing, StructType([*rows.schema.fields, *added]))
    else:
        told: dict[str, int | None] = {ARRIVAL: arrival, TAKEN: around.started_ms, KNOWN: None, LATE: None}
        rows = rows.withColumns({name: F.lit(value).cast("bigint") for name, value in told.items()})
    provided = {column.name: F.timestamp_millis(F.col(TAKEN)) for column in source.provenance}
    rows = rows.withColumns({**provided, ROW: F.monotonically_increasing_id()})
    names = [column.name for column in source.columns]
    return rows.select(*map(quoted, names), *TRAVELLING, RAW, PROBLEM, TIE, KNOWN, LATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedRelation:
    """Rows of a relation as Spark sees them; nothing is stored where there was nothing to read."""

    rows: DataFrame
    received: ReceivedRelation
    stored: InFiles | None = None
    totals: Totals | None = None
    reached: Reached | None = None

    @property
    def provenance(self) -> tuple[str, ...]:
        """When a row was taken in."""
        return tuple(column.name for column in self.received.source.provenance)

    @property
    def on_driver(self) -> bool:
        """Spark has read them."""
        return False

    @property
    def count(self) -> int:
        """How many rows were read."""
        return 0 if self.totals is None else self.totals.rows.count

    @property
    def malformed(self) -> int:
        """How many of them do not fit the declared types."""
        return 0 if self.totals is None else self.totals.malformed

    def unreadable(self) -> Iterator[pa.Table]:
        """Those that do not fit, as JSON."""
        if self.stored is not None and self.malformed:
            for part in self.stored.batches([*self.provenance, *TRAVELLING, RAW, PROBLEM]):
                yield part.filter(pc.is_valid(part[PROBLEM]))

    def raw(self, wanted: pa.Table) -> pa.Array:
        """Rows as JSON, by their identities."""
        parts = () if self.stored is None else self.stored.batches([*ORIGINS, RAW])
        return found_among(identities(wanted), parts)

    def in_spark(self) -> InSpark | None:
        """The same for Spark's tasks."""
        if self.stored is None:
            return None
        names = [*map(quoted, self.provenance), *TRAVELLING, RAW, PROBLEM]
        bad = self.stored.frame.where(f"{PROBLEM} IS NOT NULL").select(*names)
        return InSpark(bad, RawMessages((), tuple(map(str, sorted(self.stored.place.rglob("*.parquet"))))))

    @property
    def cursor(self) -> RelationCursor | None:
        """What was really read, which may be more than there was when the plan was made."""
        return None if self.reached is None else self.reached.cursor

    def known(self, _column: str) -> Known | None:
        """Nothing was watched."""
        return None

    def records(self, run: str) -> list[dict[str, Any]]:
        """What `ops.reads` is to remember."""
        if self.reached is None or self.totals is None:
            return []
        received, cursor = self.received, self.reached.cursor
        return [
            {
                "table": received.node.name,
                "relation": received.source.relation,
                "cursor": cursor.column,
                "after": self.reached.after,
                "upto": cursor.value,
                "rows": self.totals.rows.count - self.totals.known.count,
                "digest": self.totals.rows.text,
                "late": packed(self.reached.late),
                "ties": packed(self.reached.ties),
                "run": run,
                "taken_ms": received.around.started_ms,
                "arrival": received.known.arrivals if cursor.column else 0,
            }
        ]

    def require_unchanged(self) -> None:
        """What was read is known by its digests; what has become of it since is news."""
