"""What databases are asked, as SQL. Rows are asked for as text: a database writes every value of its types exactly,
where a driver may round it, read `abc` as 0, or fail as a whole because of one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from icefield.engine.intake.relations.digests import DIGITS

#: Under these names a query gives the cells, what tells rows apart, and the column by which connections share them.
IDENTITY, BEFORE, SHARE = "icefield_identity", "icefield_before", "icefield_share"


def cell(number: int) -> str:
    """The name of a cell: names of columns may differ in nothing but case, which Spark's would not."""
    return f"icefield_cell_{number}"


@dataclass(frozen=True, slots=True)
class Span:
    """Rows by the values of a cursor column, written as the database writes them; "" where there is no bound."""

    column: str = ""
    #: The declared type of the column.
    kind: str = ""
    after: str = ""
    upto: str = ""
    #: Whether rows at `after` are meant as well.
    tied: bool = False

    @classmethod
    def at(cls, column: str, kind: str, value: str) -> Span:
        """The rows with exactly this value."""
        return cls(column, kind, after=value, upto=value, tied=True)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL that Postgres and SQLite have in common."""

    def relation(self, name: str) -> str:
        """The name of a table or view."""
        return ".".join(map(self.quoted, name.split(".")))

    def quoted(self, name: str) -> str:
        """A name as it is, whatever signs and capitals it has."""
        return '"' + name.replace('"', '""') + '"'

    def literal(self, text: str, kind: str) -> str:
        """A value of a cursor column."""
        return "'" + text.replace("'", "''") + "'"

    def cell(self, column: str) -> str:
        """A value as text."""
        raise NotImplementedError

    def identity(self, columns: Sequence[str]) -> str:
        """A text that tells rows apart."""
        raise NotImplementedError

    def spark_identity(self, name: str) -> str:
        """Spark's SQL for the MD5 of a row, from the text that tells it apart."""
        return f"md5({name})"

    def where(self, span: Span) -> str:
        """SQL for the rows of a span, from WHERE on."""
        column = self.quoted(span.column)
        found = []
        if span.after:
            found.append(f"{column} {'>=' if span.tied else '>'} {self.literal(span.after, span.kind)}")
        if span.upto:
            found.append(f"{column} <= {self.literal(span.upto, span.kind)}")
        return f" WHERE {' AND '.join(found)}" if found else ""

    def rows(
        self, relation: str, columns: Sequence[str], span: Span, before: Sequence[str] = (), share: str | None = None
    ) -> str:
        """A query for the rows of a span: the cells, and what tells the rows apart."""
        parts = [f"{self.cell(column)} AS {cell(number)}" for number, column in enumerate(columns)]
        parts.append(f"{self.identity(columns)} AS {IDENTITY}")
        if before:
            parts.append(f"{self.identity(before)} AS {BEFORE}")
        if share is not None:
            parts.append(f"{self.quoted(share)} AS {SHARE}")
        return f"SELECT {', '.join(parts)} FROM {self.relation(relation)}{self.where(span)}"


@dataclass(frozen=True, slots=True)
class Postgres(Dialect):
    """Postgres computes the MD5 of a row itself."""

    def cell(self, column: str) -> str:
        """A value as text, as these settings say: `SETTINGS`."""
        return f"{self.quoted(column)}::text"

    def identity(self, columns: Sequence[str]) -> str:
        """The MD5 of a text in which no two rows are the same."""
        cells = [f"coalesce(length({self.cell(c)}) || ':' || {self.cell(c)}, '-')" for c in columns]
        return f"md5(convert_to({' || '.join(cells)}, 'UTF8'))"

    def spark_identity(self, name: str) -> str:
        """It is the MD5 already."""
        return name

    def total(self, relation: str, columns: Sequence[str], condition: str) -> str:
        """A query for the count of some rows and the sum of their digests."""
        digest = self.digest(columns)
        return f"SELECT count(*), coalesce(sum({digest}), 0)::text FROM {self.relation(relation)}{condition}"

    def digest(self, columns: Sequence[str]) -> str:
        """The digest of a row as a number."""
        return f"('x' || substr({self.identity(columns)}, 1, {DIGITS}))::bit({4 * DIGITS})::bigint"


#: By these, Postgres writes the same value as the same text to everyone.
SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
}


@dataclass(frozen=True, slots=True)
class Sqlite(Dialect):
    """SQLite knows no types of columns, only of values, and no digests."""

    def literal(self, text: str, kind: str) -> str:
        """Numbers and texts are never equal in SQLite."""
        is_text = kind == "DATE" or kind.startswith("TIMESTAMP")
        return super(Sqlite, self).literal(text, kind) if is_text else text

    def cell(self, column: str) -> str:
        """A value as text, whatever type it has."""
        return self._text(column, f"quote({self.quoted(column)})")

    def identity(self, columns: Sequence[str]) -> str:
        """A text in which no two rows are the same, unless they differ in the last of 17 digits of a REAL alone.

        Versions of SQLite write those differently, and Spark's is another one than Python's.
        """
        cells = [self._text(column, f"printf('%!.15g', {self.quoted(column)})") for column in columns]
        return " || ".join(f"coalesce(length({text}) || ':' || {text}, '-')" for text in cells)

    def _text(self, column: str, real: str) -> str:
        name = self.quoted(column)
        blob = f"'\\x' || lower(hex({name}))"
        return f"CAST(CASE typeof({name}) WHEN 'real' THEN {real} WHEN 'blob' THEN {blob} ELSE {name} END AS TEXT)"
