"""A shop whose changes are told as Debezium tells them: messages of real shape, and the rows that there must be.

What Debezium does is done here, too: one LSN for a key that changes (a delete, a tombstone, an insert), the placeholder
for large values that an update does not touch, snapshot rows with a larger LSN than changes that came later, rows that
a snapshot sends again in between, TRUNCATE without a key, and messages that are sent again after a crash.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from captured import PLACEHOLDER, text

KEYS = {"customers": ["id"], "products": ["id"], "orders": ["id"], "order_lines": ["order_id", "line_no"]}
COLUMNS = {
    "customers": ["id", "email", "name", "city", "notes"],
    "products": ["id", "sku", "name", "price"],
    "orders": ["id", "customer_id", "status", "placed_at"],
    "order_lines": ["order_id", "line_no", "product_id", "quantity", "unit_price"],
}
#: From this length on, a value counts as large (in Postgres: about 2 kB).
LARGE = 40
STARTED = 1_794_924_000_000_000
CITIES = ["Bern", "Łódź", "São Paulo", "", " Oslo ", None, "a||b", "^^", "\\"]

Row = dict[str, Any]
Message = dict[str, Any]


@dataclass
class Shop:
    """The database, and all that it has sent."""

    seed: int
    partitions: int = 1
    rows: dict[str, dict[tuple[Any, ...], Row]] = field(default_factory=lambda: {name: {} for name in KEYS})
    messages: dict[str, list[Message]] = field(default_factory=lambda: {name: [] for name in KEYS})
    lsn: int = 30_000_000
    tx: int = 700
    clock: int = STARTED
    used: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.offsets = {(name, number): 0 for name in KEYS for number in range(self.partitions)}

    # -- what happens in the database

    def begin(self) -> None:
        """Some rows that are there when Debezium begins; the first changes have smaller LSNs than they do."""
        for _ in range(4):
            self._insert("customers", self._customer(), silent=True)
            self._insert("products", self._product(), silent=True)
        for name in ("customers", "products"):
            for row in self.rows[name].values():
                self._send(name, "r", row, row, lsn=self.lsn + 5_000)
        self.step(3)
        self.lsn += 10_000

    def step(self, times: int = 1) -> None:
        """Transactions, one after the other."""
        for _ in range(times):
            self.tx += 1
            self.clock += self.chance.choice([0, 0, 1_000, 250_000, 60_000_000, -30_000])
            self.chance.choice(self._deeds())()

    def _deeds(self) -> list[Any]:
        return [
            *[lambda: self._insert("customers", self._customer())] * 2,
            lambda: self._insert("products", self._product()),
            *[self._place] * 4,
            *[self._change_customer] * 4,
            lambda: self._change("products", price=self._price()),
            *[lambda: self._change("orders", status=self.chance.choice(["paid", "sent", "open", "Open"]))] * 3,
            lambda: self._change("orders", customer_id=self._some_id("customers")),
            *[lambda: self._change("order_lines", product_id=self._some_id("products"))] * 2,
            lambda: self._change("order_lines", quantity=self.chance.randint(1, 9)),
            lambda: self._delete(self.chance.choice(["customers", "products", "orders"])),
            *[lambda: self._delete("order_lines")] * 2,
            lambda: self._move_key("customers"),
            lambda: self._move_key("products"),
            self._insert_again,
            self._snapshot_again,
        ]

    def truncate(self, *names: str) -> None:
        """All rows of some tables, at one LSN; a message for each table, without a key."""
        self.tx += 1
        self.lsn += 300
        self.clock += 1_000
        for name in names:
            self.rows[name].clear()
            self._send(name, "t", None, None)

    def send_again(self, name: str, count: int) -> None:
        """What Debezium does after a crash: the last messages once more."""
        for message in [m for m in self.messages[name] if m["value"] is not None][-count:]:
            key = (name, message["partition"])
            self.messages[name].append({**message, "offset": self.offsets[key]})
            self.offsets[key] += 1

    def _customer(self) -> Row:
        self.used += 1
        notes = self.chance.choice([None, "short", self._large()])
        return {"id": self.used, "email": f"c{self.used}@shop", "name": "Ann", "city": "Bern", "notes": notes}

    def _product(self) -> Row:
        self.used += 1
        return {"id": self.used, "sku": f"sku-{self.used}", "name": "tea", "price": self._price()}

    def _place(self) -> None:
        self.used += 1
        customer = self.chance.choice([self._some_id("customers"), self._some_id("customers"), None])
        placed = f"2026-11-17T{self.chance.randint(0, 23):02}:10:04.610721Z"
        order = {"id": self.used, "customer_id": customer, "status": "open", "placed_at": placed}
        self._insert("orders", order)
        for number in range(1, self.chance.randint(1, 4)):
            line = {"order_id": order["id"], "line_no": number, "product_id": self._some_id("products")}
            self._insert("order_lines", {**line, "quantity": self.chance.randint(1, 5), "unit_price": self._price()})

    def _change_customer(self) -> None:
        changed = self.chance.choice(
            [
                {"city": self.chance.choice(CITIES)},
                {"name": self.chance.choice(["Ann", "ANN", "Bo", None])},
                {"notes": self.chance.choice([None, "short", self._large()])},
                {},
            ]
        )
        self._change("customers", **changed)

    def _change(self, name: str, /, **changed: Any) -> None:
        if not self.rows[name]:
            return
        key = self.chance.choice(list(self.rows[name]))
        row = {**self.rows[name][key], **changed}
        self.rows[name][key] = row
        self.lsn += self.chance.choice([8, 56, 200])
        self._send(name, "u", row, self._sent(row, changed))

    def _insert(self, name: str, row: Row, *, silent: bool = False) -> None:
        self.rows[name][tuple(row[k] for k in KEYS[name])] = row
        if not silent:
            self.lsn += 120
            self._send(name, "c", row, row)

    def _insert_again(self) -> None:
        """A key that was there before."""
        gone = [number for number in range(1, self.used) if not any((number,) in rows for rows in self.rows.values())]
        if gone:
            self._insert("customers", {**self._customer(), "id": self.chance.choice(gone)})

    def _delete(self, name: str) -> None:
        if not self.rows[name]:
            return
        row = self.rows[name].pop(self.chance.choice(list(self.rows[name])))
        self.lsn += 80
        self._gone(name, row)

    def _gone(self, name: str, row: Row) -> None:
        before = {column: row[column] if column in KEYS[name] else None for column in COLUMNS[name]}
        self._send(name, "d", row, None, before=before)
        self._post(name, row, None)

    def _move_key(self, name: str) -> None:
        """A primary key that changes: gone under the old one, new under the other, at one LSN."""
        if not self.rows[name]:
            return
        self.used += 1
        row = self.rows[name].pop(self.chance.choice(list(self.rows[name])))
        moved = {**row, "id": self.used}
        self.lsn += 90
        self._gone(name, row)
        self.rows[name][(self.used,)] = moved
        self._send(name, "c", moved, self._sent(moved, {}))

    def _snapshot_again(self) -> None:
        """An incremental snapshot: rows as they are, in between."""
        for row in list(self.rows["customers"].values())[:2]:
            self._send("customers", "r", row, row)

    def _some_id(self, name: str) -> int:
        known = [row["id"] for row in self.rows[name].values()]
        return self.chance.choice(known) if known else 9_999

    def _price(self) -> str:
        return f"{self.chance.randint(1, 9999) / 100:.2f}"

    def _large(self) -> str:
        return self.chance.choice("xyz") * (LARGE + self.chance.randint(0, 3))

    # -- what Debezium sends

    @staticmethod
    def _sent(row: Row, changed: Row) -> Row:
        """A row after an update: large values that were not touched are not there."""
        return {
            name: PLACEHOLDER if isinstance(value, str) and len(value) >= LARGE and name not in changed else value
            for name, value in row.items()
        }

    def _send(
        self,
        name: str,
        op: str,
        row: Row | None,
        after: Row | None,
        *,
        before: Row | None = None,
        lsn: int | None = None,
    ) -> None:
        source = {
            "version": "3.6.2.Final",
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": self.clock // 1000,
            "snapshot": "true" if op == "r" else None,
            "db": "postgres",
            "ts_us": self.clock,
            "schema": "public",
            "table": name,
            "txId": self.tx,
            "lsn": self.lsn if lsn is None else lsn,
        }
        value = {"before": before, "after": after, "source": source, "transaction": None, "op": op}
        self._post(name, row, {**value, "ts_ms": self.clock // 1000 + 5})

    def _post(self, name: str, row: Row | None, value: Row | None) -> None:
        key = None if row is None else {column: row[column] for column in KEYS[name]}
        partition = 0 if key is None else sum(key.values()) % self.partitions
        offset = self.offsets[name, partition]
        self.offsets[name, partition] += 1
        self.messages[name].append(
            {
                "partition": partition,
                "offset": offset,
                "timestamp": self.clock // 1000,
                "key": text(key),
                "headers": [],
                "value": text(value),
            }
        )

    # -- for tests

    def known_rows(self, name: str) -> list[tuple[Any, ...]]:
        """The rows of a table as Postgres has them; values as text."""
        return [tuple(row[column] for column in COLUMNS[name]) for row in self.rows[name].values()]

    def land(self, folder: Path, name: str, start: int = 0, *, file: str = "1") -> int:
        """Writes the messages from a place on as a recording; returns how many there are in all."""
        place = folder / f"shop.public.{name}"
        place.mkdir(parents=True, exist_ok=True)
        lines = "".join(json.dumps(message) + "\n" for message in self.messages[name][start:])
        (place / f"{file}.jsonl").write_text(lines, encoding="utf-8")
        return len(self.messages[name])


def told(message: Message, topic: str) -> Message:
    """A message with its topic."""
    return {**message, "topic": topic}


def money(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
