"""A shop at work: transactions on a Postgres database, some of which are rolled back.

    python workload.py --url postgresql://postgres@localhost/postgres --seconds 60 --rate 20
    python workload.py --url ... --transactions 100 --seed 7

Customers, products, orders and their lines are inserted, updated and deleted; large notes are written and left alone;
products change their primary key; now and then all order lines are truncated. The same seed makes the same changes to
an empty database. With --manifest, every row that a committed transaction wrote is written to a file, a line a row, in
the order of the commits: what there must be in `history`.

Nothing is copied in with COPY: Debezium 3.6 can lose such rows when it is restarted.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

HERE = Path(__file__).resolve().parent
KEYS = {"customers": ["id"], "products": ["id"], "orders": ["id"], "order_lines": ["order_id", "line_no"]}
OPENED = datetime(2026, 1, 1, tzinfo=UTC)
CITIES = ("Bern", "Łódź", "São Paulo", "Zürich", "København", "Oslo", "", None)
NAMES = ("Ann", "ANN", "Bo", "Çelik", "O'Neil", "a || b", "^^", None)
STATES = ("open", "paid", "sent", "returned")

Row = dict[str, Any]
Tables = dict[str, dict[tuple[Any, ...], Row]]


class Shop:
    """The rows that are there, and how they change."""

    def __init__(self, connection: psycopg.Connection[Any], seed: int, *, truncate: float) -> None:
        self.connection = connection
        self.chance = random.Random(seed)
        self.truncate = truncate
        self.rows: Tables = {name: self._read(name) for name in KEYS}
        self.highest = max((key[0] for rows in self.rows.values() for key in rows), default=0)
        self.wrote: list[tuple[str, str, Row]] = []
        self.deeds = self._deeds()

    def _read(self, table: str) -> dict[tuple[Any, ...], Row]:
        found = self.connection.execute(f"SELECT * FROM {table}")
        names = [column.name for column in found.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        return {tuple(row[key] for key in KEYS[table]): row for row in rows}

    def transact(self, rolled_back: float) -> bool:
        """One transaction of one to three changes; whether it was committed."""
        before = {name: dict(rows) for name, rows in self.rows.items()}
        self.wrote = []
        few = not self.rows["customers"] or not self.rows["products"]
        deeds = [self._new_customer, self._new_product] if few else self.deeds
        for _ in range(self.chance.randint(1, 3)):
            self.chance.choice(deeds)()
        if self.chance.random() >= rolled_back:
            self.connection.commit()
            return True
        self.connection.rollback()
        self.rows, self.wrote = before, []
        return False

    def _deeds(self) -> list[Callable[[], None]]:
        return [
            *[self._new_customer] * 4,
            *[self._new_product] * 2,
            *[self._new_order] * 8,
            *[self._change_customer] * 6,
            *[lambda: self._update("products", price=self._price())] * 2,
            *[lambda: self._update("orders", status=self.chance.choice(STATES))] * 5,
            lambda: self._update("orders", customer_id=self._some("customers")),
            *[lambda: self._update("order_lines", product_id=self._some("products"))] * 2,
            *[lambda: self._update("order_lines", quantity=self.chance.randint(1, 9))] * 2,
            lambda: self._delete("customers"),
            lambda: self._delete("products"),
            self._delete_order,
            lambda: self._delete("order_lines"),
            self._renumber_product,
            self._truncate_lines,
        ]

    # -- changes

    def _new_customer(self) -> None:
        number = self._next()
        row = {"id": number, "email": f"c{number}@shop.example", "name": self.chance.choice(NAMES)}
        self._insert("customers", {**row, "city": self.chance.choice(CITIES), "notes": self._notes()})

    def _new_product(self) -> None:
        number = self._next()
        self._insert("products", {"id": number, "sku": f"SKU-{number}", "name": "Tea", "price": self._price()})

    def _new_order(self) -> None:
        number = self._next()
        placed = OPENED + timedelta(seconds=self.chance.randrange(10**7), microseconds=self.chance.randrange(10**6))
        customer = None if self.chance.random() < 0.05 else self._some("customers")
        self._insert("orders", {"id": number, "customer_id": customer, "status": "open", "placed_at": placed})
        for line in range(1, self.chance.randint(1, 4)):
            row = {"order_id": number, "line_no": line, "product_id": self._some("products")}
            self._insert("order_lines", {**row, "quantity": self.chance.randint(1, 5), "unit_price": self._price()})

    def _change_customer(self) -> None:
        changes: list[Row] = [
            {"city": self.chance.choice(CITIES)},
            {"city": self.chance.choice(CITIES)},
            {"name": self.chance.choice(NAMES)},
            {"notes": self._notes()},
        ]
        self._update("customers", **self.chance.choice(changes))

    def _delete_order(self) -> None:
        """An order and all its lines."""
        if not self.rows["orders"]:
            return
        (number,) = self.chance.choice(sorted(self.rows["orders"]))
        for key in [key for key in sorted(self.rows["order_lines"]) if key[0] == number]:
            self._remove("order_lines", key)
        self._remove("orders", (number,))

    def _renumber_product(self) -> None:
        """A primary key that changes: Debezium sends a delete and an insert."""
        if not self.rows["products"]:
            return
        old, new = self.chance.choice(sorted(self.rows["products"])), self._next()
        self.connection.execute("UPDATE products SET id = %s WHERE id = %s", (new, old[0]))
        row = self.rows["products"].pop(old)
        self._note("d", "products", row)
        self.rows["products"][(new,)] = moved = {**row, "id": new}
        self._note("c", "products", moved)

    def _truncate_lines(self) -> None:
        if self.chance.random() < self.truncate:
            self.connection.execute("TRUNCATE order_lines")
            for key in sorted(self.rows["order_lines"]):
                self._note("d", "order_lines", self.rows["order_lines"].pop(key))

    # -- statements

    def _insert(self, table: str, row: Row) -> None:
        values = ", ".join(["%s"] * len(row))
        self.connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})", list(row.values()))
        self.rows[table][tuple(row[key] for key in KEYS[table])] = row
        self._note("c", table, row)

    def _update(self, table: str, /, **changed: Any) -> None:
        if not self.rows[table]:
            return
        key = self.chance.choice(sorted(self.rows[table]))
        values = ", ".join(f"{column} = %s" for column in changed)
        self.connection.execute(f"UPDATE {table} SET {values} WHERE {self._where(table)}", [*changed.values(), *key])
        self.rows[table][key] = {**self.rows[table][key], **changed}
        self._note("u", table, self.rows[table][key])

    def _delete(self, table: str) -> None:
        if self.rows[table]:
            self._remove(table, self.chance.choice(sorted(self.rows[table])))

    def _remove(self, table: str, key: tuple[Any, ...]) -> None:
        self.connection.execute(f"DELETE FROM {table} WHERE {self._where(table)}", key)
        self._note("d", table, self.rows[table].pop(key))

    @staticmethod
    def _where(table: str) -> str:
        return " AND ".join(f"{key} = %s" for key in KEYS[table])

    def _note(self, op: str, table: str, row: Row) -> None:
        self.wrote.append((op, table, row))

    # -- values

    def _next(self) -> int:
        self.highest += 1
        return self.highest

    def _some(self, table: str) -> int:
        """The number of a row, or one that nothing has."""
        known = sorted(self.rows[table])
        return int(self.chance.choice(known)[0]) if known else 0

    def _price(self) -> str:
        return f"{self.chance.randint(1, 99_999) / 100:.2f}"

    def _notes(self) -> str | None:
        """Nothing, something short, or so much that Postgres stores it apart."""
        kind = self.chance.random()
        if kind < 0.3:
            return None
        return f"note {self.chance.randrange(100)}" if kind < 0.6 else self.chance.randbytes(1_100).hex()


def run(shop: Shop, asked: argparse.Namespace, manifest: IO[str] | None) -> tuple[int, int]:
    """Transactions at a rate, until time or number is reached; how many were committed and rolled back."""
    start, done, committed = time.monotonic(), 0, 0
    while done < asked.transactions if asked.transactions else time.monotonic() - start < asked.seconds:
        if asked.rate:
            time.sleep(max(0.0, start + done / asked.rate - time.monotonic()))
        committed += shop.transact(asked.rollbacks)
        done += 1
        if manifest is not None:
            for op, table, row in shop.wrote:
                manifest.write(json.dumps({"op": op, "table": table, "row": row}, default=str) + "\n")
    return committed, done - committed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="the database: postgresql://user:password@host:port/name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--transactions", type=int, default=0, help="stop after so many, instead of after some time")
    parser.add_argument("--rate", type=float, default=10, help="transactions a second; 0: as many as possible")
    parser.add_argument("--rollbacks", type=float, default=0.1, help="the share of transactions that are rolled back")
    parser.add_argument("--truncate", type=float, default=0.02, help="how often a due TRUNCATE is carried out")
    parser.add_argument("--create", action="store_true", help="only create the tables")
    parser.add_argument("--manifest", type=Path, help="a file for the rows that were written")
    asked = parser.parse_args()
    try:
        import psycopg
    except ImportError:
        print("workload.py needs psycopg: pip install 'psycopg[binary]'", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with psycopg.connect(asked.url) as connection:
        connection.execute((HERE / "schema.sql").read_text(encoding="utf-8"))
        connection.commit()
        if asked.create:
            return 0
        shop = Shop(connection, asked.seed, truncate=asked.truncate)
        connection.rollback()  # ends the transaction that has read the tables
        manifest = asked.manifest.open("a", encoding="utf-8") if asked.manifest else None
        try:
            committed, rolled_back = run(shop, asked, manifest)
        except KeyboardInterrupt:
            return 0
        finally:
            if manifest is not None:
                manifest.close()
    counts = ", ".join(f"{len(rows)} {name}" for name, rows in shop.rows.items())
    print(f"{committed} transactions committed, {rolled_back} rolled back; there are {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
