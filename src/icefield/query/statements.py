"""What `icefield sql` accepts, and how it explains what DuckDB refuses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from icefield.declare.suggest import did_you_mean
from icefield.errors import IcefieldError, NoSuchTable, QueryFailed, QueryRefused
from icefield.lake.duckdb_scan import damage

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

DIALECT = "icefield sql uses DuckDB's SQL dialect (tables and checks use Spark SQL)"
_EXPLAIN = re.compile(r"\s*explain\b(?:\s+analyze\b|\s*\([^)]*\))?", re.IGNORECASE)
_PLACE = re.compile(r"LINE (\d+): (.*)\n( *)\^")
_ABSENT = re.compile(r'Table with name "?([^"!]+?)"? does not exist')


_SHOW_TABLES = re.compile(r"\s*show\s+tables\s*;?\s*", re.IGNORECASE)


def meant(text: str) -> str:
    """The query that a text stands for: DuckDB's SHOW TABLES looks at one schema, and none of the lake's is it."""
    if _SHOW_TABLES.fullmatch(text):
        return 'SELECT "table", rows, published_at FROM ops.tables ORDER BY 1'
    return text


def require_select(db: duckdb.DuckDBPyConnection, text: str) -> None:
    """Refuses anything that is not one query; DuckDB itself says what a text is."""
    import duckdb

    statements = db.extract_statements(text)
    if not statements:
        raise QueryRefused(
            "the text contains no query", remedy='write one, as in icefield sql "SELECT * FROM ops.runs"'
        )
    kinds = [statement.type for statement in statements]
    if all(not statement.query for statement in statements):  # PIVOT, which DuckDB itself turns into several
        kinds = kinds[-1:]
    if len(kinds) > 1:
        raise QueryRefused(
            f"the text contains {len(kinds)} statements, but only one query is allowed", remedy="run them one by one"
        )
    if kinds[0] == duckdb.StatementType.EXPLAIN and (head := _EXPLAIN.match(text)):
        return require_select(db, text[head.end() :])  # EXPLAIN ANALYZE carries out what it explains
    if kinds[0] != duckdb.StatementType.SELECT:
        raise QueryRefused(
            f"{kinds[0].name} is not a query: icefield sql only reads the lake",
            remedy="tables are only changed by `icefield run`; use --out FILE to save a result",
        )
    return None


def explain(error: duckdb.Error, tables: Sequence[str]) -> IcefieldError:
    """DuckDB's message as one of ours: what, where in the text, and what to do."""
    import duckdb

    if (damaged := damage(error)) is not None:
        return damaged
    told = str(error)
    what = told.split("\n", 1)[0]
    where = _where(told)
    if absent := _ABSENT.search(told):
        name = absent[1]
        return NoSuchTable(
            f"the lake has no table `{_full(name, told)}`",
            where=where,
            remedy=did_you_mean(name, tables, all_of_them="tables"),
        )
    if isinstance(error, duckdb.PermissionException):
        return QueryRefused(
            f"a query can only read the lake: {what}",
            where=where,
            remedy="use DuckDB itself to read other files",
        )
    hints = [line for line in told.splitlines()[1:] if line.startswith(("Candidate", "Did you mean"))]
    return QueryFailed(what, where=where, remedy="; ".join([*hints, DIALECT]))


def _where(told: str) -> str:
    place = _PLACE.search(told)
    if place is None:
        return ""
    line, text, indent = place.groups()
    at = max(0, len(indent) - len(f"LINE {line}: "))
    return f"line {line} of the query, at `{text[at : at + 40].strip()}`"


def _full(name: str, told: str) -> str:
    """DuckDB leaves the schema out of its message where the schema exists; the text at the place has it."""
    place = _PLACE.search(told)
    if place is None or "." in name:
        return name
    line, text, indent = place.groups()
    written = re.match(r'[\w."]+', text[max(0, len(indent) - len(f"LINE {line}: ")) :])
    return written[0].replace('"', "") if written and written[0].endswith(name) else name
