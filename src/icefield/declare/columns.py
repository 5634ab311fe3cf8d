"""Columns as Spark's DDL text writes them, read without Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icefield.declare.registry import caller
from icefield.declare.suggest import did_you_mean
from icefield.errors import InvalidName, InvalidSchema

if TYPE_CHECKING:
    from collections.abc import Iterable

RESERVED_PREFIX = "_icefield"
SIMPLE = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
)
ALIASES = {
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "REAL": "FLOAT",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
}
MAX_PRECISION = 38
_TOKEN = re.compile(
    r"\s+|(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\")"
    r"|(?P<word>[^\W\d]\w*|\d+\w*)|(?P<sign>[<>(),:])",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its type is upper-case Spark SQL text such as `DECIMAL(12,2)`."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.type}" + ("" if self.nullable else " NOT NULL")


def parse_columns(text: str) -> tuple[Column, ...]:
    """Read `a BIGINT NOT NULL COMMENT '...', b ARRAY<STRING>`; anything else is an error that names the place."""
    if not isinstance(text, str):
        raise InvalidSchema(
            f"columns are given as a string, not as {type(text).__name__}",
            where=str(caller()),
            remedy='write them as in "id BIGINT NOT NULL, amount DECIMAL(12,2)"',
        )
    columns = _Reader(text).columns()
    _refuse_reserved(columns)
    return columns


def format_columns(columns: Iterable[Column]) -> str:
    """The columns as DDL text that Spark reads."""
    return ", ".join(
        f"`{c.name.replace('`', '``')}` {c.type}" + ("" if c.nullable else " NOT NULL") + _comment(c.comment)
        for c in columns
    )


def _comment(comment: str) -> str:
    escaped = comment.replace("\\", "\\\\").replace("'", "\\'")
    return f" COMMENT '{escaped}'" if comment else ""


def _refuse_reserved(columns: tuple[Column, ...]) -> None:
    seen: set[str] = set()
    for column in columns:
        name = column.name.lower()
        if name.startswith(RESERVED_PREFIX):
            raise InvalidName(
                f"column `{column.name}` begins with `{RESERVED_PREFIX}`, which is reserved by icefield",
                where=str(caller()),
                remedy="give the column another name",
            )
        if name in seen:
            raise InvalidSchema(
                f"column `{column.name}` is declared twice (Spark ignores case in column names)",
                where=str(caller()),
                remedy="remove or rename one of them",
            )
        seen.add(name)


class _Reader:
    """A recursive descent over the tokens of one schema text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        self.at = 0
        place = 0
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise self.error(f"unexpected `{text[place]}`", place)
            if match.lastgroup:
                self.tokens.append((match.lastgroup, match.group(), place))
            place = match.end()

    def error(self, what: str, place: int | None = None) -> InvalidSchema:
        if place is None:
            place = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        near = " ".join(self.text[max(0, place - 30) : place + 30].split())
        return InvalidSchema(
            f"the columns cannot be parsed: {what}, near `{near}`",
            where=str(caller()),
            remedy="write them as in \"id BIGINT NOT NULL, amount DECIMAL(12,2) COMMENT 'paid'\"",
        )

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            raise self.error("unexpected end of text")
        kind, value, _ = self.tokens[self.at]
        self.at += 1
        return kind, value

    def accept(self, *words: str) -> bool:
        ahead = [value.upper() for _, value, _ in self.tokens[self.at : self.at + len(words)]]
        if ahead != list(words):
            return False
        self.at += len(words)
        return True

    def need(self, sign: str) -> None:
        if not self.accept(sign):
            raise self.error(f"expected `{sign}`" + (f", not `{self.peek()}`" if self.peek() else ""))

    def columns(self) -> tuple[Column, ...]:
        found = [self.column()]
        while self.accept(","):
            found.append(self.column())
        if self.at < len(self.tokens):
            raise self.error(f"unexpected `{self.peek()}`")
        return tuple(found)

    def column(self) -> Column:
        name = self.name()
        self.accept(":")
        type_ = self.type()
        nullable = not self.accept("NOT", "NULL")
        comment = self.string() if self.accept("COMMENT") else ""
        return Column(name=name, type=type_, nullable=nullable, comment=comment)

    def name(self) -> str:
        kind, value = self.take()
        if kind == "quoted":
            return value[1:-1].replace("``", "`")
        if kind != "word":
            self.at -= 1
            raise self.error(f"expected a column name, not `{value}`")
        return value

    def string(self) -> str:
        kind, value = self.take()
        if kind != "text":
            self.at -= 1
            raise self.error("COMMENT needs a quoted string")
        quote = value[0]
        return re.sub(r"\\(.)", r"\1", value[1:-1].replace(quote * 2, quote), flags=re.DOTALL)

    def type(self) -> str:
        kind, value = self.take()
        word = ALIASES.get(value.upper(), value.upper())
        if kind != "word":
            self.at -= 1
            raise self.error(f"expected a type, not `{value}`")
        if word == "DECIMAL":
            return self.decimal()
        if word == "ARRAY":
            self.need("<")
            inner = self.type()
            self.need(">")
            return f"ARRAY<{inner}>"
        if word == "MAP":
            self.need("<")
            key = self.type()
            self.need(",")
            inner = self.type()
            self.need(">")
            return f"MAP<{key},{inner}>"
        if word == "STRUCT":
            return self.struct()
        if word not in SIMPLE:
            self.at -= 1
            hint = "write STRING" if word in {"CHAR", "VARCHAR", "TEXT"} else did_you_mean(word, _all_types())
            raise self.error(f"`{value}` is not a supported type ({hint})")
        return word

    def decimal(self) -> str:
        if not self.accept("("):
            return "DECIMAL(10,0)"
        digits = self.number()
        places = self.number() if self.accept(",") else 0
        self.need(")")
        if not 0 < digits <= MAX_PRECISION or places > digits:
            raise self.error(f"DECIMAL({digits},{places}) is not a valid type")
        return f"DECIMAL({digits},{places})"

    def number(self) -> int:
        _, value = self.take()
        if not value.isdigit():
            self.at -= 1
            raise self.error(f"expected a number, not `{value}`")
        return int(value)

    def struct(self) -> str:
        self.need("<")
        fields = [self.column()]
        while self.accept(","):
            fields.append(self.column())
        self.need(">")
        return f"STRUCT<{','.join(_field(inner) for inner in fields)}>"


def _field(field: Column) -> str:
    plain = re.fullmatch(r"[A-Za-z_]\w*", field.name)
    name = field.name if plain else f"`{field.name.replace('`', '``')}`"
    return f"{name}:{field.type}" + ("" if field.nullable else " NOT NULL") + _comment(field.comment)


def _all_types() -> list[str]:
    return [*SIMPLE, *ALIASES, "DECIMAL", "ARRAY", "MAP", "STRUCT"]
