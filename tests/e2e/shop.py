"""The tables of a shop's lake, compared with plain Python, with the database, and with what its transactions did."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from icefield.lake.duckdb_scan import connect, scan
from shop_recompute import KEYS, TYPES, micros, recompute

#: Texts that are longer than this are compared by their digests.
LONG = 2_000


def rows_of(location: str, columns: list[str]) -> Counter[tuple[Any, ...]]:
    """A table as a multiset; times as microseconds."""
    with connect() as db:
        kinds = {row[0]: row[1] for row in db.execute(f"DESCRIBE SELECT * FROM {scan(location)}").fetchall()}
        assert sorted(kinds) == sorted(columns or kinds)
        told = [f'epoch_us("{c}")' if kinds[c].startswith("TIMESTAMP") else f'"{c}"' for c in columns or kinds]
        found = db.execute(f"SELECT {', '.join(told)} FROM {scan(location)}").fetchall()
    return Counter(tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in found)


def require_same(pointers: Mapping[str, str], messages: dict[str, list[dict[str, Any]]]) -> None:
    """Every table is what plain Python makes of the messages."""
    for table, rows in recompute(messages).items():
        columns = list(rows[0]) if rows else []
        wanted = Counter(tuple(row[column] for column in columns) for row in rows)
        found = rows_of(pointers[table], columns)
        assert found == wanted, (table, columns, list((wanted - found).items())[:3], list((found - wanted).items())[:3])


def require_rows(pointers: Mapping[str, str], database: Mapping[str, list[dict[str, Any]]]) -> None:
    """The current tables are the database's, row for row."""
    for name, rows in database.items():
        columns = list(TYPES[name])
        found = Counter(tuple(map(shown, row)) for row in rows_of(pointers[f"current.{name}"], columns).elements())
        wanted = Counter(tuple(typed(column, row[column]) for column in columns) for row in rows)
        assert found == wanted, (name, list((wanted - found).items())[:3], list((found - wanted).items())[:3])


def require_states(pointers: Mapping[str, str], wrote: Iterable[tuple[str, str, dict[str, Any]]]) -> None:
    """The history of each row ends with exactly the states that committed transactions gave it, in their order.

    Rows that were there before Debezium began have a state before these.
    """
    wanted: dict[Any, list[Any]] = defaultdict(list)
    for op, name, row in wrote:
        values = tuple(typed(column, row[column]) for column in TYPES[name])
        states = wanted[name, tuple(row[key] for key in KEYS[name])]
        if op == "d":
            states.append(None)
        elif not states or states[-1] != values:
            states.append(values)
    found: dict[Any, list[Any]] = defaultdict(list)
    for name in KEYS:
        columns = [*TYPES[name], "sequence", "valid_from", "valid_to", "is_current"]
        rows = rows_of(pointers[f"history.{name}"], columns).elements()
        for row in sorted(rows, key=lambda row: row[len(TYPES[name])]):
            values = dict(zip(columns, row, strict=True))
            key = (name, tuple(values[column] for column in KEYS[name]))
            found[key].append(tuple(shown(values[column]) for column in TYPES[name]))
    for key, states in wanted.items():
        written = [state for state in states if state is not None]
        assert found[key][len(found[key]) - len(written) :] == written, key
    assert set(found) >= {key for key, states in wanted.items() if states != [None]}


def shown(value: Any) -> Any:
    return hashlib.md5(value.encode()).hexdigest() if isinstance(value, str) and len(value) > LONG else value


def typed(column: str, value: Any) -> Any:
    """A value of the database, or of the workload's notes, as the lake has it."""
    if value is None or column not in ("price", "unit_price", "placed_at"):
        return shown(value)
    return micros(str(value).replace(" ", "T")) if column == "placed_at" else Decimal(value)
