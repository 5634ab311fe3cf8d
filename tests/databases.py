"""SQLite databases of tests, and projects that read from databases."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from projects import TinyProject, tiny

TABLES = """
from datetime import timedelta
from pyspark.sql import functions as F
from icefield import append, by_key, expect, full, jdbc, table, unique


@table("raw.orders", source=jdbc("{relation}", {options}schema="{schema}"), {refresh}
       checks=[expect("amount is positive", "amount > 0"){checks}], otherwise="quarantine")
def orders(rows):
    return rows{code}


@table("gold.by_customer", refresh=by_key("customer"))
def by_customer(orders):
    return orders.groupBy("customer").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))
"""
SCHEMA = "id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP"
BY_TIME = 'cursor="at", '


def declared(
    root: Path,
    profile: str,
    *,
    relation: str = "orders",
    options: str = "",
    schema: str = SCHEMA,
    refresh: str = "",
    checks: str = "",
    code: str = "",
) -> TinyProject:
    """A project over one relation."""
    return tiny(root, tables(relation, options, schema, refresh, checks, code), more=profile)


def tables(
    relation: str = "orders",
    options: str = "",
    schema: str = SCHEMA,
    refresh: str = "",
    checks: str = "",
    code: str = "",
) -> str:
    return TABLES.format(relation=relation, options=options, schema=schema, refresh=refresh, checks=checks, code=code)


def order(number: int, second: int = 0, amount: Any = 1, customer: str = "ann") -> tuple[Any, ...]:
    """An order at some second after ten."""
    return number, customer, amount, f"{datetime(2026, 8, 1, 10) + timedelta(seconds=second)}"


def many(count: int, start: int = 0) -> list[tuple[Any, ...]]:
    """Orders of as many customers, one a second."""
    return [order(number, number, customer=f"c{number}") for number in range(start, start + count)]


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A database that other programs write to."""

    path: Path

    @property
    def profile(self) -> str:
        return f'[profile.local.jdbc.default]\nurl = "jdbc:sqlite:{self.path.name}"\n'

    def execute(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            for statement in statements:
                db.execute(statement)

    def insert(self, rows: Sequence[tuple[Any, ...]], relation: str = "orders") -> None:
        with closing(sqlite3.connect(self.path)) as db, db:
            for row in rows:
                db.execute(f"INSERT INTO {relation} VALUES ({', '.join('?' * len(row))})", row)


def orders_in(root: Path, rows: Sequence[tuple[Any, ...]] = ()) -> SqliteFile:
    """A database with a table of orders."""
    root.mkdir(parents=True, exist_ok=True)
    database = SqliteFile(root / "shop.db")
    database.execute("CREATE TABLE orders (id INTEGER, customer TEXT, amount NUMERIC, at TEXT)")
    database.insert(rows)
    return database
