"""Seeded landing data of a shop: the same arguments give the same bytes, and the manifest says exactly what is in them.

    python generate.py --rows 3800000 --days 90          # a fresh landing folder beside this script
    python generate.py --append --days 1                 # one more day after the last
    python generate.py --rows 38000 --rows-of support_tickets=20000     # more of one feed

A row is dirty in one way at most, so the manifest's counts are the counts a correct pipeline must find in quarantine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray
from pyarrow import csv

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Draws = np.random.Generator

DAY = 86_400
WAREHOUSES = 5
LONG_AGO = "1999-12-31 23:59:59"  # before any creation: --start may not be earlier than 2000
KINDS = ("null_key", "duplicate", "bad_value", "malformed")
EVENT_TYPES = ("view", "click", "add_to_cart", "purchase")
PRIORITIES = ("critical", "high", "medium", "low")
STATUSES = ("completed", "failed", "refunded")
DEVICES = ("mobile", "desktop", "tablet")
REFERRERS = ("google", "direct", "newsletter", "instagram", "partner")
METHODS = ("card", "paypal", "bank_transfer", "voucher")
CATEGORIES = ("delivery", "return", "product", "payment", "account")
CURRENCIES = ("EUR", "EUR", "EUR", "EUR", "EUR", "EUR", "EUR", "USD", "USD", "GBP")
RESPONSE_LIMIT = np.array([1, 4, 8, 24], dtype=np.int64) * 3600
RESOLUTION_LIMIT = np.array([4, 24, 72, 168], dtype=np.int64) * 3600
HOUR_WEIGHTS = np.array(
    [3, 2, 1, 1, 1, 2, 4, 6, 8, 9, 10, 11, 13, 12, 11, 11, 12, 14, 18, 22, 24, 21, 14, 7], dtype=np.float64
)
WEEKDAY_WEIGHTS = np.array([1.0, 1.0, 1.02, 1.05, 1.15, 1.45, 1.4])


DEFAULTS: dict[str, Any] = {"rows": 3_800_000, "days": 90, "start": "2026-08-01", "seed": 7, "dirty": 0.002}


class WrongArgumentsError(ValueError):
    """What was asked for cannot be generated; the message says what to ask for instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feed:
    """What dirtying needs to know of a feed: its columns, and where a key, a number, a text and a bad value can sit."""

    name: str
    share: int
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    bad: tuple[tuple[str, str], ...]
    money: str | None = None

    def at(self, column: str) -> int:
        return self.columns.index(column)


EVENTS = Feed(
    name="customer_events",
    share=20,
    columns=(
        "event_id",
        "customer_id",
        "session_id",
        "event_type",
        "product_id",
        "event_timestamp",
        "device",
        "referrer",
        "page_url",
    ),
    keys=("event_id", "customer_id", "session_id", "product_id"),
    numbers=("event_id", "customer_id", "product_id"),
    texts=("device", "page_url"),
    bad=(("event_type", "hover"), ("event_type", "PURCHASE")),
)
PAYMENTS = Feed(
    name="payment_transactions",
    share=10,
    columns=(
        "transaction_id",
        "customer_id",
        "product_id",
        "amount",
        "currency",
        "payment_method",
        "status",
        "transaction_timestamp",
    ),
    keys=("transaction_id", "customer_id", "product_id"),
    numbers=("customer_id", "product_id", "amount"),
    texts=("payment_method",),
    bad=(("status", "pending"), ("amount", "-{}"), ("amount", "0.00")),
    money="amount",
)
INVENTORY = Feed(
    name="inventory_snapshots",
    share=5,
    columns=(
        "snapshot_id",
        "product_id",
        "warehouse_id",
        "stock_quantity",
        "reorder_level",
        "avg_daily_sales",
        "snapshot_timestamp",
    ),
    keys=("snapshot_id", "product_id"),
    numbers=("product_id", "stock_quantity", "avg_daily_sales"),
    texts=(),
    bad=(("stock_quantity", "-5"), ("stock_quantity", "-120")),
)
TICKETS = Feed(
    name="support_tickets",
    share=3,
    columns=(
        "ticket_id",
        "customer_id",
        "category",
        "priority",
        "created_at",
        "first_response_at",
        "resolved_at",
        "satisfaction_score",
    ),
    keys=("ticket_id", "customer_id"),
    numbers=("customer_id", "satisfaction_score"),
    texts=("category",),
    bad=(("priority", "urgent"), ("first_response_at", LONG_AGO), ("resolved_at", LONG_AGO)),
)
FEEDS = (EVENTS, PAYMENTS, INVENTORY, TICKETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One call's arguments: what makes its bytes."""

    rows: int
    days: int
    start: str
    seed: int
    dirty: float
    rows_of: dict[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Rows of each feed: its share of the total, or what was asked for."""
        return {**_split(self.rows), **self.rows_of}

    @property
    def first(self) -> date:
        return date.fromisoformat(self.start)

    @property
    def begin(self) -> int:
        return (self.first - date(1970, 1, 1)).days * DAY

    @property
    def end(self) -> int:
        return self.begin + self.days * DAY

    def day(self, index: int) -> str:
        return (self.first + timedelta(days=index)).isoformat()


@dataclass(slots=True, kw_only=True)
class Manifest:
    """The truth about a landing folder, and what an append needs to go on."""

    customers: int
    products: int
    batches: list[Batch] = field(default_factory=list)
    next_id: dict[str, int] = field(default_factory=lambda: {f.name: 1 for f in FEEDS} | {"session": 1})
    feeds: dict[str, dict[str, dict[str, Any]]] = field(default_factory=lambda: {f.name: {} for f in FEEDS})

    @property
    def last_day(self) -> date:
        return date.fromisoformat(max(self.feeds[EVENTS.name]))


class World:
    """Who buys what at which price: the same for every batch of a landing folder."""

    def __init__(self, seed: int, customers: int, products: int) -> None:
        rng = np.random.default_rng([seed, 0])
        self.customers, self.products = customers, products
        self.cents = np.clip(rng.lognormal(7.5, 1.3, products), 299, 149_999).astype(np.int64) // 100 * 100 + 99
        # A few products sell most: popularity falls with the rank, and ranks are dealt at random.
        self.demand = (1.0 / (np.arange(products) + 2.0))[rng.permutation(products)]
        self.demand /= self.demand.sum()
        self._products = np.cumsum(self.demand)
        activity = rng.lognormal(0.0, 1.1, customers)
        self._customers = np.cumsum(activity / activity.sum())

    def some_customers(self, rng: Draws, count: int) -> Ints:
        return np.minimum(np.searchsorted(self._customers, rng.random(count)), self.customers - 1).astype(np.int64)

    def some_products(self, rng: Draws, count: int) -> Ints:
        return np.minimum(np.searchsorted(self._products, rng.random(count)), self.products - 1).astype(np.int64)


def _moments(rng: Draws, count: int, batch: Batch) -> Ints:
    """Seconds since 1970, busier in the evening and at weekends."""
    weekdays = (batch.first.weekday() + np.arange(batch.days)) % 7
    by_day = WEEKDAY_WEIGHTS[weekdays]
    day = rng.choice(batch.days, count, p=by_day / by_day.sum())
    hour = rng.choice(24, count, p=HOUR_WEIGHTS / HOUR_WEIGHTS.sum())
    return batch.begin + day * DAY + hour * 3600 + rng.integers(0, 3600, count)


def _pick(rng: Draws, count: int, *weights: float) -> Ints:
    return rng.choice(len(weights), count, p=np.array(weights) / sum(weights)).astype(np.int64)


def _words(words: Sequence[str], indices: Ints) -> pa.Array:
    return pa.array(words).take(pa.array(indices))


def _seconds(seconds: Ints, missing: NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(seconds, mask=missing).cast(pa.timestamp("s"))


def _money(cents: Ints) -> pa.Array:
    wide = np.zeros((len(cents), 2), dtype=np.int64)  # the low and the high half of a 128 bit integer
    wide[:, 0] = cents
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), [None, pa.py_buffer(wide)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A feed's clean rows in the order of their time, and that time."""

    feed: Feed
    table: pa.Table
    seconds: Ints

    def bounds(self, batch: Batch) -> Ints:
        """Where each day begins among the rows, and where the last one ends."""
        return np.searchsorted(self.seconds, batch.begin + np.arange(batch.days + 1) * DAY).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """Who bought what and when, in the order of time: what payments and tickets follow."""

    customer: Ints
    product: Ints
    seconds: Ints
    status: Ints


def _session_lengths(rng: Draws, events: int) -> Ints:
    lengths = np.where(rng.random(events) < 0.15, 1, np.clip(1 + rng.geometric(1 / 7, events), 2, 40)).astype(np.int64)
    total = np.cumsum(lengths)
    last = int(np.searchsorted(total, events))
    lengths[last] -= total[last] - events
    return lengths[: last + 1]


def _session_times(rng: Draws, lengths: Ints, first: Ints, session: Ints, batch: Batch) -> Ints:
    """Events of a session in order, seconds to minutes apart, an hour at most, and within the batch's days."""
    gaps = np.maximum(rng.lognormal(3.9, 0.8, len(session)), 1.0)
    gaps[first] = 0.0
    since = np.cumsum(gaps)
    since -= since[first][session]
    span = since[first + lengths - 1]
    since *= np.minimum(1.0, 3_500.0 / np.maximum(span, 1.0))[session]
    latest = batch.end - 2 - np.minimum(span, 3_500.0).astype(np.int64)
    start: Ints = np.minimum(np.sort(_moments(rng, len(lengths), batch)), latest)
    return start[session] + since.astype(np.int64)


def _what_happens(rng: Draws, world: World, lengths: Ints, first: Ints, session: Ints) -> tuple[Ints, Ints]:
    """Types and products: look first, then put into the cart, then perhaps buy; one product or two."""
    events, sessions = len(session), len(lengths)
    position = np.arange(events) - first[session]
    left = (lengths - 1)[session] - position
    mood = np.where(lengths >= 3, rng.random(sessions), 1.0)
    buys, fills = (mood < 0.40)[session], ((mood >= 0.40) & (mood < 0.62))[session]
    items = np.where((mood < 0.12) & (lengths >= 6), 2, 1)[session]
    wanted, second = world.some_products(rng, sessions)[session], world.some_products(rng, sessions)[session]

    types = np.where((position > 0) & (rng.random(events) < 0.35), 1, 0)
    types[(items == 2) & (position == 1)] = 0
    types[fills & (left == 1)] = 2
    types[buys & (left < 2 * items)] = 2
    types[buys & (left < items)] = 3
    product = np.where((position == 0) | (rng.random(events) < 0.5), wanted, world.some_products(rng, events))
    product = np.where((items == 2) & (position == 1), second, product)
    product = np.where(types >= 2, np.where((items == 2) & (left % 2 == 1), second, wanted), product)
    seen = np.maximum.accumulate(np.where(types == 1, 0, np.arange(events)))  # a click is on what was looked at last
    return types, product[seen]


def _customer_events(rng: Draws, world: World, batch: Batch, count: int, ids: dict[str, int]) -> tuple[Rows, Orders]:
    lengths = _session_lengths(rng, count)
    first = np.cumsum(lengths) - lengths
    session = np.repeat(np.arange(len(lengths)), lengths)
    seconds = _session_times(rng, lengths, first, session, batch)
    types, product = _what_happens(rng, world, lengths, first, session)
    customer = world.some_customers(rng, len(lengths))
    device, referrer = _pick(rng, len(lengths), 6, 3, 1), _pick(rng, len(lengths), 8, 6, 3, 2, 1)

    order = np.argsort(seconds, kind="stable")  # stable: equal seconds keep the order within their session
    session, seconds, types, product = session[order], seconds[order], types[order], product[order]
    names = pa.array([f"s{number}" for number in range(ids["session"], ids["session"] + len(lengths))])
    pages = [f"/product/{number}" for number in range(1, world.products + 1)] + ["/cart", "/checkout"]
    ids["session"] += len(lengths)
    columns = [
        np.arange(count) + ids[EVENTS.name],
        customer[session] + 1,
        names.take(pa.array(session)),
        _words(EVENT_TYPES, types),
        product + 1,
        _seconds(seconds),
        _words(DEVICES, device[session]),
        _words(REFERRERS, referrer[session]),
        _words(pages, np.where(types < 2, product, world.products + types - 2)),
    ]
    bought = types == 3
    orders = Orders(
        customer=customer[session][bought], product=product[bought], seconds=seconds[bought], status=types[bought]
    )
    return Rows(feed=EVENTS, table=pa.table(columns, list(EVENTS.columns)), seconds=seconds), orders


def _payments(
    rng: Draws, world: World, batch: Batch, count: int, ids: dict[str, int], web: Orders
) -> tuple[Rows, Orders]:
    """Every purchase on the web is paid within two minutes; the rest is ordered by telephone, app and subscription."""
    paid = min(count, len(web.seconds))
    other = count - paid
    seconds = np.concatenate([web.seconds[:paid] + rng.integers(3, 120, paid), _moments(rng, other, batch)])
    customer = np.concatenate([web.customer[:paid], world.some_customers(rng, other)])
    product = np.concatenate([web.product[:paid], world.some_products(rng, other)])
    order = np.argsort(seconds, kind="stable")
    seconds, customer, product = np.minimum(seconds[order], batch.end - 1), customer[order], product[order]
    status = _pick(rng, count, 90, 6, 4)
    columns = [
        np.arange(count) + ids[PAYMENTS.name],
        customer + 1,
        product + 1,
        _money(world.cents[product] * (1 + _pick(rng, count, 80, 15, 5))),
        _words(CURRENCIES, customer % len(CURRENCIES)),
        _words(METHODS, _pick(rng, count, 60, 25, 10, 5)),
        _words(STATUSES, status),
        _seconds(seconds),
    ]
    orders = Orders(customer=customer, product=product, seconds=seconds, status=status)
    return Rows(feed=PAYMENTS, table=pa.table(columns, list(PAYMENTS.columns)), seconds=seconds), orders


def _inventory(rng: Draws, world: World, batch: Batch, count: int, ids: dict[str, int], sales_a_day: float) -> Rows:
    """Warehouses count their shelves in turn from 5 to 19 o'clock; stock falls with sales and is filled up again."""
    number = np.arange(count) + ids[INVENTORY.name]
    day = np.arange(count) * batch.days // max(count, 1)
    a_day = np.bincount(day, minlength=batch.days)
    rank = np.arange(count) - (np.cumsum(a_day) - a_day)[day]
    shelf = (number - 1) % (world.products * WAREHOUSES)
    product, warehouse = shelf % world.products, shelf // world.products
    rate = np.round(world.demand[product] * sales_a_day / WAREHOUSES, 1)
    rate[shelf % 97 == 0] = 0.0  # kept here, never sold from here
    cycle = 14 + shelf * 7 % 17
    waited = (batch.begin // DAY + day + shelf * 31) % cycle
    stock = np.maximum(rate * (cycle + 4 - waited) * rng.uniform(0.7, 1.1, count), rate == 0).astype(np.int64)
    seconds = batch.begin + day * DAY + 5 * 3600 + rank * (14 * 3600) // np.maximum(a_day, 1)[day]
    columns = [
        number,
        product + 1,
        warehouse + 1,
        stock,
        np.ceil(rate * 8).astype(np.int64),
        pa.array(rate),
        _seconds(seconds),
    ]
    return Rows(feed=INVENTORY, table=pa.table(columns, list(INVENTORY.columns)), seconds=seconds)


def _tickets(rng: Draws, batch: Batch, count: int, ids: dict[str, int], orders: Orders) -> Rows:
    """A ticket follows a payment; what would be answered or resolved after the last day is still open."""
    about = rng.integers(0, len(orders.seconds), count)
    created = orders.seconds[about] + rng.exponential(1.5 * DAY, count).astype(np.int64)
    room = batch.end - orders.seconds[about]
    created = np.where(
        created < batch.end, created, orders.seconds[about] + (rng.random(count) * room).astype(np.int64)
    )
    order = np.argsort(created, kind="stable")
    created, about = created[order], about[order]
    priority = _pick(rng, count, 5, 15, 50, 30)
    exact = rng.random(count) < 0.02  # some answers come at the very limit
    answer = RESPONSE_LIMIT[priority] * np.where(exact, 1.0, np.minimum(rng.lognormal(-0.8, 0.8, count), 5.0))
    solution = RESOLUTION_LIMIT[priority] * np.where(exact, 1.0, np.minimum(rng.lognormal(-0.6, 0.7, count), 5.0))
    answered = created + np.maximum(answer.astype(np.int64), 30)
    resolved = np.maximum(created + solution.astype(np.int64), answered)
    waiting, unsolved = answered >= batch.end, (resolved >= batch.end) | (rng.random(count) < 0.04)
    unpaid = (orders.status[about] == STATUSES.index("failed")) & (rng.random(count) < 0.7)
    category = np.where(unpaid, CATEGORIES.index("payment"), _pick(rng, count, 40, 25, 20, 5, 10))
    columns = [
        np.arange(count) + ids[TICKETS.name],
        orders.customer[about] + 1,
        _words(CATEGORIES, category),
        _words(PRIORITIES, priority),
        _seconds(created),
        _seconds(answered, waiting),
        _seconds(resolved, unsolved),
        pa.array(1 + _pick(rng, count, 5, 8, 17, 35, 35), mask=unsolved | (rng.random(count) < 0.4)),
    ]
    return Rows(feed=TICKETS, table=pa.table(columns, list(TICKETS.columns)), seconds=created)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirt:
    """What stands in a line instead of its clean row; `repeats` is file:line of the row that a duplicate copies."""

    kind: str
    line: bytes
    repeats: str = ""


def _null_key(feed: Feed, cells: list[bytes], turn: int) -> bytes:
    cells[feed.at(feed.keys[turn % len(feed.keys)])] = b""
    return b",".join(cells)


def _bad_value(feed: Feed, cells: list[bytes], turn: int) -> bytes:
    column, value = feed.bad[turn % len(feed.bad)]
    at = feed.at(column)
    cells[at] = value.format(cells[at].decode()).encode()
    return b",".join(cells)


def _malformed(feed: Feed, cells: list[bytes], turn: int) -> bytes:
    number = feed.at(feed.numbers[turn % len(feed.numbers)])
    ways = 5 if feed.money else 4
    match turn % ways:
        case 0:
            del cells[2 + turn % (len(cells) - 2) :]
        case 1:
            cells.append(b"surplus")
        case 2:
            cells[number] = b"n/a"
        case 3:
            cells[feed.at(feed.texts[0]) if feed.texts else number] = b"caf\xe9 \xff"
        case _:
            cells[feed.at(feed.money or "")] = b"1.999"
    return b",".join(cells)


def _lines(table: pa.Table) -> bytes:
    sink = BytesIO()
    csv.write_csv(table, sink, csv.WriteOptions(include_header=False, quoting_style="none"))
    return sink.getvalue()


def _earlier_row(rng: Draws, position: int, dirty: frozenset[int]) -> int | None:
    """A clean row before this one, near or anywhere: a repeat of a dirty row would have no first arrival."""
    for attempt in range(20):
        reach = min(position, 300) if attempt % 2 == 0 else position
        if reach and (row := position - 1 - int(rng.integers(0, reach))) not in dirty:
            return row
    return None


def _dirt(rng: Draws, rows: Rows, batch: Batch, earlier: list[tuple[str, bytes]]) -> dict[int, Dirt]:
    """Dirty lines by row: equal parts of each kind; a duplicate that finds nothing to repeat loses its key instead."""
    count = round(rows.table.num_rows * batch.dirty)
    positions = np.sort(rng.choice(rows.table.num_rows, count, replace=False)).tolist()
    kinds, dirty = rng.permutation(np.arange(count) % len(KINDS)).tolist(), frozenset(positions)
    own = _lines(rows.table.take(pa.array(positions, pa.int64()))).splitlines()
    turns = dict.fromkeys(KINDS, 0)
    copies: dict[int, int] = {}
    result: dict[int, Dirt] = {}
    for position, code, line in zip(positions, kinds, own, strict=True):
        kind, cells = KINDS[code], line.split(b",")
        if kind == "duplicate":
            if earlier and rng.random() < 0.5:
                place, old = earlier[int(rng.integers(0, len(earlier)))]
                result[position] = Dirt(kind=kind, line=old, repeats=place)
            elif (copied := _earlier_row(rng, position, dirty)) is not None:
                copies[position] = copied
        if kind == "duplicate" and (position in result or position in copies):
            continue
        kind = "null_key" if kind == "duplicate" else kind
        spoil = {"null_key": _null_key, "bad_value": _bad_value, "malformed": _malformed}[kind]
        result[position] = Dirt(kind=kind, line=spoil(rows.feed, cells, turns[kind]))
        turns[kind] += 1
    bounds = rows.bounds(batch)
    copied_lines = _lines(rows.table.take(pa.array(list(copies.values()), pa.int64()))).splitlines()
    for (position, copied), line in zip(copies.items(), copied_lines, strict=True):
        day = int(np.searchsorted(bounds, copied, side="right")) - 1
        place = f"{rows.feed.name}/{batch.day(day)}.csv:{copied - bounds[day] + 2}"
        result[position] = Dirt(kind="duplicate", line=line, repeats=place)
    return result


@contextmanager
def _complete(path: Path) -> Iterator[BinaryIO]:
    """A file that has its name only once it is whole; until then it is hidden from *.csv and *.json."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _write_day(path: Path, feed: Feed, clean: bytes, dirt: dict[int, Dirt]) -> dict[str, Any]:
    """One file, its dirty lines in their places, and what the manifest says of it."""
    ends = np.flatnonzero(np.frombuffer(clean, dtype=np.uint8) == ord("\n")) + 1
    lines: dict[str, list[int]] = {kind: [] for kind in KINDS}
    repeats: dict[str, str] = {}
    with _complete(path) as file:
        file.write(",".join(feed.columns).encode() + b"\n")
        done = 0
        for row, spoiled in sorted(dirt.items()):
            file.write(clean[done : int(ends[row - 1]) if row else 0] + spoiled.line + b"\n")
            done = int(ends[row])
            lines[spoiled.kind].append(row + 2)
            if spoiled.repeats:
                repeats[str(row + 2)] = spoiled.repeats
        file.write(clean[done:])
    counts = {kind: len(numbers) for kind, numbers in lines.items()}
    return {"rows": len(ends), "dirty": counts, "lines": lines, "repeats": repeats}


def _write_feed(out: Path, rng: Draws, rows: Rows, batch: Batch, manifest: Manifest) -> None:
    feed, days = rows.feed, manifest.feeds[rows.feed.name]
    dirt = _dirt(rng, rows, batch, _repeatable(out, feed, days))
    bounds = rows.bounds(batch)
    by_day: list[dict[int, Dirt]] = [{} for _ in range(batch.days)]
    for row, spoiled in dirt.items():
        day = int(np.searchsorted(bounds, row, side="right")) - 1
        by_day[day][row - int(bounds[day])] = spoiled
    for day in range(batch.days):
        clean = _lines(rows.table.slice(bounds[day], bounds[day + 1] - bounds[day]))
        name = batch.day(day)
        days[name] = _write_day(out / feed.name / f"{name}.csv", feed, clean, by_day[day])
    manifest.next_id[feed.name] += rows.table.num_rows


def _repeatable(out: Path, feed: Feed, days: dict[str, dict[str, Any]]) -> list[tuple[str, bytes]]:
    """The clean lines of the last landed day, for an append to repeat; none if that file has been taken away."""
    if not days:
        return []
    last = max(days)
    path = out / feed.name / f"{last}.csv"
    if not path.exists():
        return []
    dirty = {number for numbers in days[last]["lines"].values() for number in numbers}
    lines = enumerate(path.read_bytes().splitlines(), start=1)
    return [(f"{feed.name}/{last}.csv:{number}", line) for number, line in lines if number > 1 and number not in dirty]


def _split(rows: int) -> dict[str, int]:
    """The total dealt out by the feeds' shares; what rounding leaves goes to the largest."""
    total = sum(feed.share for feed in FEEDS)
    parts = {feed.name: rows * feed.share // total for feed in FEEDS}
    parts[EVENTS.name] += rows - sum(parts.values())
    return parts


def _read_manifest(out: Path) -> Manifest | None:
    path = out / "manifest.json"
    if not path.exists():
        return None
    try:
        data = json.loads(path.read_bytes())
        return Manifest(**data | {"batches": [Batch(**batch) for batch in data["batches"]]})
    except (ValueError, TypeError, KeyError) as error:
        raise WrongArgumentsError(
            f"{path} is not a manifest of this generator ({error}): choose another --out."
        ) from None


def _check(batch: Batch) -> None:
    if not 1 <= batch.days <= 3_660:
        raise WrongArgumentsError(f"--days must be between 1 and 3660, not {batch.days}.")
    if batch.rows < 38:
        raise WrongArgumentsError(f"--rows must be at least 38, so that every feed has rows, not {batch.rows}.")
    for feed, rows in batch.rows_of.items():
        if feed not in {known.name for known in FEEDS}:
            names = ", ".join(known.name for known in FEEDS)
            raise WrongArgumentsError(f"--rows-of names the feed {feed}, and there are {names}.")
        if rows < 1:
            raise WrongArgumentsError(f"--rows-of {feed} must be at least 1, not {rows}.")
    if not 0 <= batch.dirty <= 0.5:
        raise WrongArgumentsError(
            f"--dirty is the share of dirty rows and must be between 0 and 0.5, not {batch.dirty}."
        )
    if batch.seed < 0:
        raise WrongArgumentsError(f"--seed must not be negative, not {batch.seed}.")
    if not 2000 <= batch.first.year <= 9000:
        raise WrongArgumentsError(f"--start must be between the years 2000 and 9000, not {batch.start}.")


def _fresh(out: Path, known: Manifest | None, batch: Batch) -> Manifest:
    """A new landing folder; one that holds other data is never written over or mixed with."""
    days = {f"{batch.day(index)}.csv" for index in range(batch.days)}
    strangers = [path for feed in FEEDS for path in (out / feed.name).glob("*.csv") if path.name not in days]
    if known is not None and known.batches != [batch]:
        raise WrongArgumentsError(
            f"{out} already holds data up to {known.last_day} made with other arguments: continue it with --append, "
            "choose another --out, or remove the folder."
        )
    if strangers:
        raise WrongArgumentsError(
            f"{out} holds files that this call would not write, such as {min(strangers)}: choose another --out, or "
            "remove them."
        )
    shelves = batch.counts[INVENTORY.name] // batch.days // WAREHOUSES
    return Manifest(customers=max(20, batch.rows // 76), products=min(max(5, shelves), 2_000))


def _continued(out: Path, known: Manifest | None, batch: dict[str, Any]) -> Batch:
    """What an append leaves out is as in the first batch: its rows a day, its dirt, its seed."""
    if known is None:
        raise WrongArgumentsError(f"{out} has no manifest.json to append to: generate without --append first.")
    first = known.batches[0]
    days = 1 if batch["days"] is None else batch["days"]
    start = batch["start"] or (known.last_day + timedelta(days=1)).isoformat()
    if _date(start) <= known.last_day:
        raise WrongArgumentsError(
            f"--start {start} must be after {known.last_day}, the last day in {out / 'manifest.json'}."
        )
    usual = {"days": days, "start": start, "rows": max(38, round(first.rows / first.days * days))}
    usual["rows_of"] = {feed: max(1, round(rows / first.days * days)) for feed, rows in first.rows_of.items()}
    return Batch(**asdict(first) | usual | {key: value for key, value in batch.items() if value is not None})


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise WrongArgumentsError(f"--start must be a date such as 2026-08-01, not {text!r}.") from None


def generate(
    out: Path | str,
    *,
    rows: int | None = None,
    days: int | None = None,
    start: str | None = None,
    seed: int | None = None,
    dirty: float | None = None,
    rows_of: dict[str, int] | None = None,
    append: bool = False,
    progress: bool = False,
) -> dict[str, Any]:
    """Write the landing files and return the manifest; None means the default, or with append: as before."""
    out = Path(out)
    asked: dict[str, Any] = {"rows": rows, "days": days, "start": start, "seed": seed, "dirty": dirty}
    asked["rows_of"] = rows_of or None
    if start is not None:
        asked["start"] = _date(start).isoformat()
    known = _read_manifest(out)
    if append:
        batch = _continued(out, known, asked)
    else:
        batch = Batch(**DEFAULTS | {key: value for key, value in asked.items() if value is not None})
    _check(batch)
    manifest = known if append and known is not None else _fresh(out, known, batch)
    world_seed = manifest.batches[0].seed if manifest.batches else batch.seed
    world = World(world_seed, manifest.customers, manifest.products)
    since = time.monotonic()
    for rows_of_feed, rng in _all_rows(world, batch, manifest.next_id):
        _write_feed(out, rng, rows_of_feed, batch, manifest)
        if progress:
            count, took = rows_of_feed.table.num_rows, time.monotonic() - since
            files = "1 file" if batch.days == 1 else f"{batch.days} files"
            print(f"{rows_of_feed.feed.name}: {count:,} rows in {files} ({took:.1f} s)", file=sys.stderr)
    manifest.batches.append(batch)
    data = asdict(manifest)
    with _complete(out / "manifest.json") as file:
        file.write(json.dumps(data, indent=1).encode() + b"\n")
    return data


def _all_rows(world: World, batch: Batch, ids: dict[str, int]) -> Iterable[tuple[Rows, Draws]]:
    """Each feed has its own stream of random numbers, so that one feed's size does not change another's rows."""
    counts = batch.counts
    streams = [np.random.default_rng([batch.seed, batch.begin // DAY, number]) for number in range(1, 5)]
    events, bought = _customer_events(streams[0], world, batch, counts[EVENTS.name], ids)
    yield events, streams[0]
    payments, orders = _payments(streams[1], world, batch, counts[PAYMENTS.name], ids, bought)
    yield payments, streams[1]
    sales_a_day = counts[PAYMENTS.name] / batch.days
    yield _inventory(streams[2], world, batch, counts[INVENTORY.name], ids, sales_a_day), streams[2]
    yield _tickets(streams[3], batch, counts[TICKETS.name], ids, orders), streams[3]


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"generate: {message} (see --help)\n")


def _rows_of(text: str) -> tuple[str, int]:
    feed, _, rows = text.partition("=")
    if not rows.isdigit():
        raise argparse.ArgumentTypeError(f"write FEED=N, such as support_tickets=20000, not {text!r}")
    return feed, int(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; wrong arguments and unwritable folders end with 2 and one paragraph."""
    here = Path(__file__).resolve().parent / "landing"
    parser = _Arguments(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=here, help="the landing folder (default: landing beside this script)"
    )
    parser.add_argument("--rows", type=int, help="total over all feeds and days (default 3800000)")
    parser.add_argument("--days", type=int, help="number of days (default 90; with --append 1)")
    parser.add_argument("--start", help="first day (default 2026-08-01; with --append the day after the last)")
    parser.add_argument("--seed", type=int, help="same seed and arguments, same bytes (default 7)")
    parser.add_argument("--dirty", type=float, help="share of dirty rows (default 0.002)")
    parser.add_argument(
        "--rows-of", action="append", type=_rows_of, metavar="FEED=N", help="rows of one feed; may be repeated"
    )
    parser.add_argument("--append", action="store_true", help="continue after the last day of the manifest")
    asked = vars(parser.parse_args(arguments))
    asked["rows_of"] = dict(asked["rows_of"] or ())
    try:
        manifest = generate(**asked, progress=True)
    except WrongArgumentsError as error:
        print(f"generate: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        place = error.filename or asked["out"]
        print(f"generate: cannot write {place}: {error.strerror}. Choose another --out or free it.", file=sys.stderr)
        return 2
    rows = sum(day["rows"] for days in manifest["feeds"].values() for day in days.values())
    print(f"{asked['out']} holds {rows:,} rows up to {max(manifest['feeds'][EVENTS.name])}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
