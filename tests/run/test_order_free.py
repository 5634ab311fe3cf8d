"""The same events shuffled, cut into runs of any size and repeated give the same lake: real runs, against plain Python.

ICEFIELD_ORDER_EXAMPLES=200 ICEFIELD_EXACT_SEED=7 pytest tests/run/test_order_free.py      # make soak
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from captured import COLUMNS, events_of
from icefield.lake.duckdb_scan import connect, scan
from projects import TinyProject, tiny
from shop_messages import Shop, told
from shop_recompute import current, history, hk, hub, link, parse, pit, satellite, status

pytestmark = pytest.mark.spark

EXAMPLES = max(1, int(os.environ.get("ICEFIELD_ORDER_EXAMPLES", "2")) // 2)
SEED = int(os.environ["ICEFIELD_EXACT_SEED"])  # drawn by tests/conftest.py where nobody has chosen one

TABLES = """
from icefield import append, by_key, cdc, files, frames, full, lookup, table
from icefield.vault import hub, link, pit, satellite, status_satellite

EVENTS = (
    "topic STRING, partition INT, offset BIGINT, key STRING, op STRING, lsn BIGINT, tx_id BIGINT, source_ts TIMESTAMP,"
    " before STRING, after STRING, is_snapshot BOOLEAN"
)


def captured(name, schema):
    raw, parsed, truncates = f"raw.{name}", f"parsed.{name}", f"parsed.{name}_truncates"

    @table(raw, source=files(f"landing/{name}/*.jsonl", schema=EVENTS), refresh=append())
    def events(rows):
        return rows

    @table(truncates, inputs={"events": raw}, refresh=append())
    def truncated(events):
        return events.where("op = 't'").select("op", "partition", "offset", "lsn", "tx_id", "source_ts")

    @table(parsed, inputs={"events": raw, "truncates": lookup(truncates)}, refresh=by_key(**cdc.key_of(schema, ["id"])))
    def typed(events, truncates):
        return cdc.parse(events, schema, ["id"], truncates=truncates)

    @table(f"current.{name}", inputs={"events": parsed}, refresh=by_key("id"))
    def current(events):
        return cdc.latest(events, "id", "sequence").select(*[column.split()[0] for column in schema.split(", ")])

    @table(f"history.{name}", inputs={"events": parsed}, refresh=by_key("id"))
    def states(events):
        found = cdc.history(events, "id", "sequence", "event_time")
        own = [column.split()[0] for column in schema.split(", ")]
        return found.select(*own, "sequence", "valid_from", "valid_to", "is_current")


captured("customers", "id BIGINT, email STRING, name STRING, city STRING, notes STRING")
captured("orders", "id BIGINT, customer_id BIGINT, status STRING, placed_at TIMESTAMP")


@table(
    "seeds.ghosts",
    source=frames(lambda: [("0" * 32, "1900-01-01 00:00:00")], schema="hash_key STRING, at STRING"),
    refresh=full(),
)
def ghosts(rows):
    return rows.selectExpr("hash_key", "CAST(at AS TIMESTAMP) AS load_date", "'SYSTEM' AS record_source")


SHOP = {"record_source": "shop.public"}
hub(
    "vault.hub_customer", hk="customer_hk", key=["customer_id"], ghosts="seeds.ghosts",
    seen_in={"parsed.customers": ["id"], "parsed.orders": ["customer_id"]}, **SHOP,
)
link(
    "vault.link_order_customer", "parsed.orders", hk="order_customer_hk", by="order_hk",
    hubs={"order_hk": ["id"], "customer_hk": ["customer_id"]}, **SHOP,
)
satellite(
    "vault.sat_customer", "parsed.customers", hk="customer_hk", key=["id"], ghosts="seeds.ghosts",
    payload=["email", "name", "city", "notes"], **SHOP,
)
status_satellite("vault.sat_customer_status", "parsed.customers", hk="customer_hk", key=["id"], **SHOP)
pit(
    "vault.pit_customer", "vault.hub_customer", hk="customer_hk",
    satellites={"sat_customer": "vault.sat_customer", "sat_customer_status": "vault.sat_customer_status"},
)
"""


def wanted(shop: Shop) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for name in ("customers", "orders"):
        found[f"parsed.{name}"] = parsed = list(parse(name, shop.messages[name]))
        found[f"current.{name}"], found[f"history.{name}"] = current(name, parsed), history(name, parsed)
    customers, orders = found["parsed.customers"], found["parsed.orders"]
    found["vault.hub_customer"] = hub("customer", (customers, "id"), (orders, "customer_id"))
    found["vault.link_order_customer"] = link(
        orders,
        lambda row: {
            "order_customer_hk": hk(row["id"], row["customer_id"]),
            "order_hk": hk(row["id"]),
            "customer_hk": hk(row["customer_id"]),
        },
        "id",
    )
    payload = ["email", "name", "city", "notes"]
    found["vault.sat_customer"] = satellite(customers, lambda row: {"customer_hk": hk(row["id"])}, payload)
    found["vault.sat_customer_status"] = status(customers, lambda row: {"customer_hk": hk(row["id"])}, "id")
    found["vault.pit_customer"] = pit(found)
    return found


def rows_of(location: str, columns: list[str]) -> Counter[tuple[Any, ...]]:
    with connect() as db:
        kinds = {row[0]: row[1] for row in db.execute(f"DESCRIBE SELECT * FROM {scan(location)}").fetchall()}
        assert sorted(kinds) == sorted(columns)
        asked = [f'epoch_us("{c}")' if kinds[c].startswith("TIMESTAMP") else f'"{c}"' for c in columns]
        found = db.execute(f"SELECT {', '.join(asked)} FROM {scan(location)}").fetchall()
    return Counter(tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in found)


def land(made: TinyProject, name: str, file: str, events: list[tuple[Any, ...]]) -> None:
    place = made.root / "landing" / name
    place.mkdir(parents=True, exist_ok=True)
    rows = [{k: v for k, v in zip(COLUMNS, event, strict=True) if k != "ingested_at"} for event in events]
    (place / f"{file}.jsonl").write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))


def test_events_in_any_order_and_batches_give_the_same_lake(tmp_path: Path) -> None:
    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(number=st.integers(0, 10**9), steps=st.integers(5, 40), runs=st.integers(2, 4), whole=st.booleans())
    def compare(number: int, steps: int, runs: int, whole: bool) -> None:
        place = tmp_path / str(len(list(tmp_path.iterdir())))  # the same number may be drawn again
        require_same(place, number, steps, runs, in_order=whole)

    compare()


def require_same(root: Path, number: int, steps: int, runs: int, *, in_order: bool) -> None:
    """A shop's events, cut into runs anywhere: shuffled before, or only cut, so that a TRUNCATE comes late or not."""
    made, shop, chance = tiny(root, TABLES), Shop(number), random.Random(number)
    shop.begin()
    shop.step(steps)
    shop.truncate(chance.choice(["orders", "customers"]))
    shop.step(steps)
    batches: list[dict[str, list[Any]]] = [{} for _ in range(runs)]
    for name in ("customers", "orders"):
        events = events_of(told(message, name) for message in shop.messages[name])
        events += chance.sample(events, len(events) // 4)
        if not in_order:
            chance.shuffle(events)
        cuts = sorted(chance.choices(range(len(events) + 1), k=runs - 1))
        for batch, start, end in zip(batches, [0, *cuts], [*cuts, len(events)], strict=True):
            batch[name] = events[start:end]
    for file, batch in enumerate(batches):
        for name, events in batch.items():
            land(made, name, str(file), events)
        result = made.run()
        assert result.ok, result.error
    pointers = made.lake.pointers()
    for table, rows in wanted(shop).items():
        columns = list(rows[0]) if rows else []
        expected = Counter(tuple(row[column] for column in columns) for row in rows)
        found = rows_of(pointers[table], columns) if rows else Counter(made.rows(table))
        assert found == expected, (number, table, list(expected - found)[:2], list(found - expected)[:2])
