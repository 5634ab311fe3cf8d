"""Rows of a relation as Spark's JDBC reader gives them: every value as text, and what tells rows apart.

Postgres and SQLite write the texts themselves. Of other databases, Spark's own types are written as text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DateType, DecimalType, IntegralType, TimestampNTZType, TimestampType

from icefield.declare.suggest import did_you_mean
from icefield.engine.intake.relations.clients import unordered
from icefield.engine.intake.relations.dialects import BEFORE, IDENTITY, SETTINGS, SHARE, Dialect, Postgres, Sqlite, cell
from icefield.engine.intake.relations.values import typed
from icefield.engine.session.spark import quoted_for
from icefield.engine.sql import quoted
from icefield.errors import DatabaseRefused, NoDatabase, NoDriver, NoRelation, SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from icefield.declare import Jdbc
    from icefield.engine.intake.relations.connection import Connection
    from icefield.engine.intake.relations.dialects import Span

#: How many rows a connection fetches at a time; Postgres's driver would hold all of them.
_FETCHED = 10_000
_DIALECTS: dict[str, Dialect] = {"postgres": Postgres(), "sqlite": Sqlite()}
_ORDERED = (IntegralType, DecimalType, DateType, TimestampType, TimestampNTZType)
_FROM_DRIVER = re.compile(r"java\.sql\.|SQLException|PSQLException|JDBC_EXTERNAL_ENGINE|ClassNotFoundException")
_SAID = re.compile(r"(?:SQL\w*Exception|SparkException|ClassNotFoundException): (.+)")
_REFUSED = re.compile(r"(?i)authenti|password|access denied|login|permission|not authorized|privilege")
_ABSENT = re.compile(r"(?i)JDBC_EXTERNAL_ENGINE_SYNTAX|does not exist|doesn't exist|not found|no such|unknown|invalid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One relation, to be read by Spark; `setup` is SQL that every connection begins with."""

    spark: SparkSession
    connection: Connection
    source: Jdbc
    setup: str = field(default="", repr=False)

    @property
    def dialect(self) -> Dialect | None:
        """How the database writes texts itself; None where Spark does."""
        return _DIALECTS.get(self.connection.kind)

    def rows(self, names: Sequence[str], span: Span, before: Sequence[str] = ()) -> DataFrame:
        """The rows of a span: a cell for each name, IDENTITY, and BEFORE where other columns were read before."""
        if self.dialect is None:
            return self._native(names, span, before)
        share = self.source.ordered_by if self.source.partitions > 1 else None
        query = self.dialect.rows(self.source.relation, names, span, before, share)
        options: dict[str, str] = {}
        if share is not None:
            ends = f"CAST(min({SHARE}) AS TEXT) AS low, CAST(max({SHARE}) AS TEXT) AS high"
            bounds = self._first(f"SELECT {ends} FROM ({query}) AS bounds", {"customSchema": "low STRING, high STRING"})
            options = self._shares(SHARE, *bounds)
        kinds = [f"{cell(number)} STRING" for number in range(len(names))] + [f"{IDENTITY} STRING"]
        kinds += [f"{BEFORE} STRING"] if before else []
        if options and self.connection.kind == "sqlite" and self.source.type_of(str(share)) in ("DATE", *_TIMES):
            kinds.append(f"{SHARE} TIMESTAMP")  # SQLite has them as text
        frame = self._load(f"({query}) AS rows_of_relation", {**options, "customSchema": ", ".join(kinds)})
        return self._hashed(frame.drop(SHARE), before, self.dialect)

    def _hashed(self, frame: DataFrame, before: Sequence[str], dialect: Dialect) -> DataFrame:
        frame = frame.withColumn(IDENTITY, F.expr(dialect.spark_identity(IDENTITY)))
        return frame.withColumn(BEFORE, F.expr(dialect.spark_identity(BEFORE))) if before else frame

    # -- other databases

    def highest(self, column: str, kind: str) -> tuple[str, int]:
        """The highest value of a cursor column as text, "" if there is none, and how many rows have NULL there."""
        native = self._own([column])[column]
        frame = self._load(self.source.relation, {})
        if not isinstance(frame.schema[native].dataType, _ORDERED):
            known = frame.schema[native].dataType.simpleString()
            raise unordered(self.source.relation, column, known, kind, self.connection.where)
        name = quoted_for(self.spark, self.connection.jdbc_url, native)
        # The count of all rows is compared with that of values: a NULL has neither a place above nor below.
        query = f"SELECT max({name}) AS high, count(*) AS n, count({name}) AS m FROM {self.source.relation}"
        found = self._load(f"({query}) rows_of_relation", {}).selectExpr(
            f"CAST(CAST(high AS {kind}) AS STRING) AS high", "CAST(n - m AS BIGINT) AS nulls"
        )
        with telling(self.connection):
            row = found.collect()[0]
        return row["high"] or "", int(row["nulls"])

    def _native(self, names: Sequence[str], span: Span, before: Sequence[str]) -> DataFrame:
        own = self._own([*names, *before])
        options: dict[str, str] = {}
        if self.source.partitions > 1 and self.source.ordered_by is not None:
            native = own[self.source.ordered_by]
            name = quoted_for(self.spark, self.connection.jdbc_url, native)
            bounds = self._first(f"SELECT min({name}) AS low, max({name}) AS high FROM {self.source.relation}", {})
            options = self._shares(native, *bounds)
        frame = self._load(self.source.relation, options)
        if span.after:  # with what is equal: databases may tell times apart that Spark does not
            kind = frame.schema[own[span.column]].dataType
            frame = frame.where(F.col(quoted(own[span.column])) >= F.lit(span.after).cast(kind))
        cells = {name: _as_text(frame, own[name]) for name in own}
        texts = [F.expr(cells[name]).alias(cell(number)) for number, name in enumerate(names)]
        told = [F.expr(f"md5({_identity([cells[n] for n in names])})").alias(IDENTITY)]
        if before:
            told.append(F.expr(f"md5({_identity([cells[n] for n in before])})").alias(BEFORE))
        return frame.select(*texts, *told)

    def _own(self, names: Sequence[str]) -> dict[str, str]:
        """The names of columns as the database has them: many ignore case."""
        found = self._load(self.source.relation, {}).columns
        by_lower = {name.lower(): name for name in found}
        for name in names:
            if name not in found and name.lower() not in by_lower:
                raise NoRelation(
                    f"{self.source.relation} has no column {name}",
                    where=self.connection.where,
                    remedy=did_you_mean(name, found, all_of_them="columns"),
                )
        return {name: name if name in found else by_lower[name.lower()] for name in names}

    # -- Spark's reader

    def _load(self, table: str, options: dict[str, str]) -> DataFrame:
        connection = self.connection
        told = {"url": connection.jdbc_url, "dbtable": table, "fetchsize": str(_FETCHED), **connection.properties}
        if connection.kind == "postgres":
            settings = "; ".join(f"SET {key} = '{value}'" for key, value in SETTINGS.items())
            told["sessionInitStatement"] = f"{self.setup}{settings}"
        with telling(connection):
            return self.spark.read.format("jdbc").options(**told, **options).load()

    def _first(self, query: str, options: dict[str, str]) -> tuple[str | None, str | None]:
        with telling(self.connection):
            found = self._load(f"({query}) first_row", options).selectExpr(
                "CAST(low AS STRING)", "CAST(high AS STRING)"
            )
            row = found.collect()[0]
        return row[0], row[1]

    def _shares(self, column: str, low: str | None, high: str | None) -> dict[str, str]:
        """How connections share the rows: each a range of values, without bounds at both ends."""
        kind = self.source.type_of(str(self.source.ordered_by))
        try:
            ends = [typed(end or "", kind) for end in (low, high)]
        except ValueError:  # there are no rows, or values that are none: one connection reads all of them
            return {}
        if kind not in ("DATE", *_TIMES):
            low, high = (str(math.floor(end)) for end in ends if isinstance(end, int | Decimal))
        return {
            "partitionColumn": column,
            "lowerBound": str(low),
            "upperBound": str(high),
            "numPartitions": str(self.source.partitions),
        }


_TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ")


def _as_text(frame: DataFrame, name: str) -> str:
    if isinstance(frame.schema[name].dataType, BinaryType):
        return f"concat('\\\\x', lower(hex({quoted(name)})))"
    return f"CAST({quoted(name)} AS STRING)"


def _identity(cells: Sequence[str]) -> str:
    return "concat(" + ", ".join(f"coalesce(concat(length({text}), ':', {text}), '-')" for text in cells) + ")"


@contextmanager
def telling(connection: Connection) -> Iterator[None]:
    """Says in our words what a driver did not like; what Spark itself did not like is left as it is."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as problem:
        found = driver_problem(str(problem), connection)
        if found is None:
            raise
        raise found from None


def driver_problem(text: str, connection: Connection) -> SourceError | None:
    """The problem that a driver had, from the words of Java; None where it was not a driver's."""
    if not _FROM_DRIVER.search(text):
        return None
    said = _SAID.search(text)
    told = connection.without_secrets(said[1].strip() if said else text.splitlines()[0])
    if "ClassNotFoundException" in text or "No suitable driver" in text:
        return NoDriver(
            f"Java has no JDBC driver for this database: {told}",
            where=connection.where,
            remedy=f'name the jar of the driver in {connection.section}: jar = "drivers/NAME.jar", and its class if'
            ' Java does not find it: driver = "..."',
        )
    kind: type[SourceError] = NoDatabase
    remedy = f"is the database running, and is this its address? It is set in {connection.section}; the log has more"
    if _REFUSED.search(told):
        kind, remedy = DatabaseRefused, f"check user and password of {connection.section}, and what the user may read"
    elif _ABSENT.search(told):
        kind, remedy = NoRelation, "check the names of the relation and its columns"
    return kind(f"the database cannot be read: {told}", where=connection.where, remedy=remedy)
