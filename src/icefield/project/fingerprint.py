"""Code fingerprints: equal as long as a table's meaning is, in every process, however it was laid out."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from icefield.declare import Check, Column, RowCheck, Source, Table, Unique
from icefield.project.meaning import Code, Meaning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from icefield.graph import Edge

VERSION = 1
#: Settings of Spark's by which the same query means something else; each stands for all that begin with it.
_MEANING = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.",
    "spark.sql.legacy.",
    "spark.sql.caseSensitive",
    "spark.sql.decimalOperations.",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.storeAssignmentPolicy",
)
#: What they are where nobody says it.
_DEFAULTS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
}


def fingerprint(table: Table, edges: tuple[Edge, ...], code: Code, spark: Mapping[str, str]) -> str:
    """The code fingerprint: what the function does, transitively, and where its rows come from."""
    meaning = Meaning(code, table.location)
    content = {
        "function": meaning.of(table.function),
        "inputs": [_edge(edge, meaning) for edge in edges],
        "refresh": [type(table.refresh).__name__, meaning.of(table.refresh)],
        "columns": None if table.columns is None else _columns(table.columns),
    }
    session = sorted((key, str(value)) for key, value in spark.items() if _matters(key, str(value)))
    return _digest({**content, "session": session} if session else content)


def _matters(key: str, value: str) -> bool:
    return key.startswith(_MEANING) and _DEFAULTS.get(key) != value


def checks_fingerprint(checks: tuple[Check, ...]) -> str:
    """The fingerprint of what decides where a row goes: predicates, unique keys, and their outcomes."""
    rows: list[Any] = [["row", " ".join(c.predicate.split()), c.otherwise] for c in checks if isinstance(c, RowCheck)]
    keys: list[Any] = [["unique", list(c.columns), c.otherwise] for c in checks if isinstance(c, Unique)]
    return _digest(sorted(rows + keys, key=json.dumps))


def _edge(edge: Edge, meaning: Meaning) -> list[Any]:
    source = None if edge.source is None else _source(edge.source, meaning)
    return [edge.parameter, edge.table, source, edge.lookup, sorted(edge.key.items()), list(edge.on)]


def _source(source: Source, meaning: Meaning) -> list[Any]:
    """Everything that decides which rows a source gives; not what happens when a taken file changes or goes."""
    told: dict[str, Any] = {}
    for name in type(source).__dataclass_fields__:
        value = getattr(source, name)
        if name == "schema":
            told[name] = _columns(value)
        elif name not in _NO_MEANING and not (name in _LATER and value == _LATER[name]):
            told[name] = meaning.of(value)
    return [type(source).__name__, sorted(told.items())]


#: What happens to files that change or go, and in which runs, and how many at once, rows are taken in.
_NO_MEANING = ("changed", "deleted", "batch", "max_per_run", "lag", "partitions")
#: Options that came later: tables that do not use them are to have the fingerprints that they had before.
_LATER = {"encoding": "utf-8", "header": True, "null_values": (), "date_format": "", "timestamp_format": ""}


def _columns(columns: tuple[Column, ...]) -> list[list[str]]:
    return [[column.name, column.type] for column in columns]


def _digest(content: object) -> str:
    text = json.dumps([VERSION, content], separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
