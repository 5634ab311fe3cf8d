"""What every table of the shop has to hold, worked out in plain Python: events are taken one after the other.

Nothing of icefield is used, and nothing is computed as it is there: a dictionary is the database, and each event
changes it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
UNKNOWN, SYSTEM, SOURCE = "0" * 32, "SYSTEM", "shop.public"
BEGINNING = -2_208_988_800_000_000
PLACEHOLDER = "__debezium_unavailable_value"

TYPES: dict[str, dict[str, Callable[[Any], Any]]] = {
    "customers": {"id": int, "email": str, "name": str, "city": str, "notes": str},
    "products": {"id": int, "sku": str, "name": str, "price": Decimal},
    "orders": {"id": int, "customer_id": int, "status": str, "placed_at": lambda text: micros(text)},
    "order_lines": {"order_id": int, "line_no": int, "product_id": int, "quantity": int, "unit_price": Decimal},
}
KEYS = {"customers": ["id"], "products": ["id"], "orders": ["id"], "order_lines": ["order_id", "line_no"]}


def micros(text: str) -> int:
    moment = datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    return int(seconds) * 1_000_000 + moment.microsecond


def recompute(messages: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """All tables by name, from the messages of each topic."""
    tables: dict[str, list[Row]] = {}
    for name in KEYS:
        parsed = list(parse(name, messages[name]))
        tables[f"parsed.{name}"] = parsed
        tables[f"current.{name}"] = current(name, parsed)
        tables[f"history.{name}"] = history(name, parsed)
    tables |= vault(tables)
    tables |= marts(tables)
    return tables


# -- capture


def parse(name: str, messages: Iterable[Row]) -> Iterator[Row]:
    state: dict[tuple[Any, ...], Row] = {}
    seen: set[tuple[Any, ...]] = set()
    counts: Counter[tuple[Any, ...]] = Counter()
    clocks: dict[tuple[Any, ...], int] = {}
    for message in in_order(messages):
        if message["value"] is None:
            continue
        value = json.loads(message["value"])
        source, op = value["source"], value["op"]
        key = None if message["key"] is None else tuple(json.loads(message["key"])[k] for k in KEYS[name])
        if (key, source["lsn"], op) in seen:
            continue
        seen.add((key, source["lsn"], op))
        touched = [key] if key is not None else [k for k, row in state.items() if row["alive"]]
        for one in touched:
            counts[one] += 1
            clocks[one] = max(clocks.get(one, source["ts_us"]), source["ts_us"])
            row = state[one] = changed(name, one, op, value["after"], state.get(one))
            yield {
                **row["values"],
                "op": op,
                "is_deleted": not row["alive"],
                "is_snapshot": op == "r",
                "partition": message["partition"],
                "position": message["offset"],
                "lsn": source["lsn"],
                "tx_id": source["txId"],
                "source_ts": source["ts_us"],
                "event_time": clocks[one],
                "sequence": counts[one],
                "unavailable": tuple(row["unavailable"]) or None,
                "misfit": None,
                "undeclared": None,
            }


def in_order(messages: Iterable[Row]) -> list[Row]:
    """By offset; in several partitions, messages have to be given in the order in which they were sent."""
    found = list(messages)
    alone = len({message["partition"] for message in found}) <= 1
    return sorted(found, key=lambda message: message["offset"]) if alone else found


def changed(name: str, key: tuple[Any, ...], op: str, after: Row | None, before: Row | None) -> Row:
    """A row after an event: what is known of each column, and of which columns nothing is."""
    if op in "dt":
        values = before["values"] if before and before["alive"] else {**empty(name), **keyed(name, key)}
        return {"values": values, "known": {}, "alive": False, "unavailable": []}
    known = dict(before["known"]) if before and before["alive"] and op != "c" else {}
    missing = []
    for column, kind in TYPES[name].items():
        if after is not None and after.get(column) == PLACEHOLDER:
            if column not in known:
                missing.append(column)
        elif after is not None and column in after:
            known[column] = None if after[column] is None else kind(after[column])
    values = {**empty(name), **known, **keyed(name, key)}
    return {"values": values, "known": known, "alive": True, "unavailable": missing}


def empty(name: str) -> Row:
    return dict.fromkeys(TYPES[name])


def keyed(name: str, key: tuple[Any, ...]) -> Row:
    return dict(zip(KEYS[name], key, strict=True))


def by_key(rows: Iterable[Row], *columns: str) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[column] for column in columns)].append(row)
    return found


def current(name: str, parsed: list[Row]) -> list[Row]:
    last = [rows[-1] for rows in by_key(parsed, *KEYS[name]).values()]
    return [{column: row[column] for column in TYPES[name]} for row in last if not row["is_deleted"]]


def history(name: str, parsed: list[Row]) -> list[Row]:
    found = []
    for rows in by_key(parsed, *KEYS[name]).values():
        states: list[Row] = []
        open_state: Row | None = None
        for row in rows:
            values = {column: row[column] for column in TYPES[name]}
            same = open_state is not None and all(open_state[column] == values[column] for column in values)
            if not row["is_deleted"] and same:
                assert open_state is not None
                open_state["sequence"] = row["sequence"]
                continue
            if open_state is not None:
                open_state["valid_to"] = row["event_time"]
                open_state = None
            if not row["is_deleted"]:
                open_state = {**values, "sequence": row["sequence"], "valid_from": row["event_time"], "valid_to": None}
                states.append(open_state)
        found += [{**state, "is_current": state["valid_to"] is None} for state in states]
    return found


# -- vault


def md5(parts: Iterable[str | None]) -> str:
    escaped = [
        "^^" if part is None else "".join(f"\\{letter}" if letter in "\\|^" else letter for letter in part)
        for part in parts
    ]
    return hashlib.md5("||".join(escaped).encode()).hexdigest()


def shown(value: Any) -> str | None:
    return None if value is None else str(value)


def hk(*values: Any) -> str:
    if all(value is None for value in values):
        return UNKNOWN
    return md5(None if value is None else str(value).strip(" ").upper() for value in values)


def stamp(row: Row) -> Row:
    return {"load_date": row["event_time"], "sequence": row["sequence"], "record_source": SOURCE}


GHOST = {"load_date": BEGINNING, "sequence": 0, "record_source": SYSTEM}


def vault(tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    customers, products = tables["parsed.customers"], tables["parsed.products"]
    orders, lines = tables["parsed.orders"], tables["parsed.order_lines"]
    found = {
        "vault.hub_customer": hub("customer", (customers, "id"), (orders, "customer_id")),
        "vault.hub_product": hub("product", (products, "id"), (lines, "product_id")),
        "vault.hub_order": hub("order", (orders, "id"), (lines, "order_id")),
        "vault.link_order_customer": link(
            orders,
            lambda row: {
                "order_customer_hk": hk(row["id"], row["customer_id"]),
                "order_hk": hk(row["id"]),
                "customer_hk": hk(row["customer_id"]),
            },
            "id",
        ),
        "vault.link_order_product": link(
            lines,
            lambda row: {
                "order_product_hk": hk(row["order_id"], row["product_id"], row["line_no"]),
                "order_hk": hk(row["order_id"]),
                "product_hk": hk(row["product_id"]),
                "line_no": row["line_no"],
            },
            "order_id",
            "line_no",
        ),
        "vault.sat_customer": satellite(
            customers, lambda row: {"customer_hk": hk(row["id"])}, ["email", "name", "city", "notes"]
        ),
        "vault.sat_product": satellite(products, lambda row: {"product_hk": hk(row["id"])}, ["sku", "name", "price"]),
        "vault.sat_order": satellite(orders, lambda row: {"order_hk": hk(row["id"])}, ["status", "placed_at"]),
        "vault.sat_order_line": satellite(
            lines,
            lambda row: {
                "order_product_hk": hk(row["order_id"], row["product_id"], row["line_no"]),
                "order_hk": hk(row["order_id"]),
            },
            ["quantity", "unit_price"],
        ),
        "vault.sat_customer_status": status(customers, lambda row: {"customer_hk": hk(row["id"])}, "id"),
        "vault.sat_product_status": status(products, lambda row: {"product_hk": hk(row["id"])}, "id"),
        "vault.sat_order_status": status(orders, lambda row: {"order_hk": hk(row["id"])}, "id"),
        "vault.sat_order_line_status": status(
            lines,
            lambda row: {"order_product_hk": hk(row["order_id"], row["product_id"], row["line_no"])},
            "order_id",
            "line_no",
            keep=True,
        ),
    }
    found["vault.pit_customer"] = pit(found)
    return found


def hub(entity: str, *seen: tuple[list[Row], str]) -> list[Row]:
    first: dict[Any, Row] = {}
    for rows, column in seen:
        for row in rows:
            if row[column] is None:
                continue
            known = first.get(row[column])
            if known is None or (row["event_time"], row["sequence"]) < (known["load_date"], known["sequence"]):
                first[row[column]] = stamp(row)
    rows = [{f"{entity}_hk": hk(value), f"{entity}_id": value, **stamps} for value, stamps in first.items()]
    return [*rows, {f"{entity}_hk": UNKNOWN, f"{entity}_id": None, **GHOST}]


def link(events: list[Row], told: Callable[[Row], Row], *driver: str) -> list[Row]:
    found = []
    for rows in by_key(events, *driver).values():
        now: Row | None = None
        for row in rows:
            next_one = None if row["is_deleted"] else told(row)
            if now is not None and (next_one is None or next_one != {name: now[name] for name in next_one}):
                now["end_date"] = row["event_time"]
                now = None
            if now is None and next_one is not None:
                now = {**next_one, **stamp(row), "end_date": None}
                found.append(now)
    return found


def satellite(events: list[Row], told: Callable[[Row], Row], payload: list[str]) -> list[Row]:
    found: list[Row] = []
    last: dict[Any, str] = {}
    alive = [row for row in events if not row["is_deleted"]]
    for row in sorted(alive, key=lambda row: (row["event_time"], row["sequence"])):
        keys = told(row)
        digest = md5(as_text(row[column]) for column in sorted(payload))
        first = next(iter(keys.values()))
        if last.get(first) != digest:
            last[first] = digest
            found.append({**keys, **{column: row[column] for column in payload}, "hashdiff": digest, **stamp(row)})
    ghost = {**dict.fromkeys(told(events[0]) if events else {}, UNKNOWN), **dict.fromkeys(payload), "hashdiff": None}
    return [*found, {**ghost, **GHOST}]


def as_text(value: Any) -> str | None:
    """A value as Spark casts it to text; times are kept as microseconds here."""
    if isinstance(value, int) and value > 10**14:
        moment = datetime.fromtimestamp(value // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        rest = f"{value % 1_000_000:06}".rstrip("0")
        return f"{moment}.{rest}" if rest else moment
    return shown(value)


def status(events: list[Row], told: Callable[[Row], Row], *driver: str, keep: bool = False) -> list[Row]:
    found = []
    for key, rows in by_key(events, *driver).items():
        extra = dict(zip(driver, key, strict=True)) if keep else {}
        now: Row | None = None
        for row in rows:
            keys, active = told(row), not row["is_deleted"]
            if now is not None and now["is_active"] and now["keys"] != keys:
                found.append({**now["keys"], **extra, "is_active": False, **stamp(row)})
            if now != {"keys": keys, "is_active": active}:
                found.append({**keys, **extra, "is_active": active, **stamp(row)})
            now = {"keys": keys, "is_active": active}
    return found


def pit(tables: dict[str, list[Row]]) -> list[Row]:
    satellites = {
        name: by_key(tables[f"vault.{name}"], "customer_hk") for name in ("sat_customer", "sat_customer_status")
    }
    found = []
    for key, known in by_key(tables["vault.hub_customer"], "customer_hk").items():
        own = {name: rows.get(key, []) for name, rows in satellites.items()}
        moments = sorted({row["load_date"] for rows in (known, *own.values()) for row in rows})
        for moment, until in itertools.zip_longest(moments, moments[1:]):
            row: Row = {"customer_hk": key[0], "as_of": moment, "until": until}
            for name, rows in own.items():
                valid = [(r["load_date"], r["sequence"]) for r in rows if r["load_date"] <= moment]
                newest = max(valid, default=None)
                row[f"{name}_hk"] = UNKNOWN if newest is None else key[0]
                row[f"{name}_load_date"], row[f"{name}_sequence"] = newest or (BEGINNING, 0)
            found.append(row)
    return found


# -- marts


def marts(tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """From the database as it is, not from the vault."""
    customers = {row["id"]: row for row in tables["current.customers"]}
    lines = by_key(tables["current.order_lines"], "order_id")
    overview = [order_overview(row, tables, customers, lines) for row in tables["current.orders"]]
    return {
        "marts.order_overview": overview,
        "marts.customer_lifetime": customer_lifetime(tables, overview),
        "marts.product_sales": product_sales(tables),
        "marts.customer_as_of": customer_as_of(tables),
    }


def order_overview(row: Row, tables: dict[str, list[Row]], customers: Row, lines: Row) -> Row:
    own = lines.get((row["id"],), [])
    # A customer that is gone is still known by name.
    known = [c for c in tables["parsed.customers"] if c["id"] == row["customer_id"] and not c["is_deleted"]]
    last = known[-1] if known else {"name": None, "city": None}
    return {
        "order_hk": hk(row["id"]),
        "order_id": row["id"],
        "customer_hk": hk(row["customer_id"]),
        "customer_id": row["customer_id"],
        "customer_name": last["name"],
        "customer_city": last["city"],
        "status": row["status"],
        "placed_at": row["placed_at"],
        "lines": len(own),
        "items": sum(line["quantity"] for line in own),
        "amount": sum((line["quantity"] * line["unit_price"] for line in own), Decimal("0.00")),
    }


def customer_lifetime(tables: dict[str, list[Row]], overview: list[Row]) -> list[Row]:
    found = []
    last = {row["id"]: not row["is_deleted"] for row in tables["parsed.customers"]}
    for row in tables["vault.hub_customer"]:
        number = row["customer_id"]
        own = [one for one in overview if one["customer_id"] == number]
        if number is not None:
            found.append(
                {
                    "customer_hk": row["customer_hk"],
                    "customer_id": number,
                    "is_active": last.get(number),
                    "orders": len(own),
                    "items": sum(one["items"] for one in own),
                    "amount": sum((one["amount"] for one in own), Decimal("0.00")),
                    "first_order": min((one["placed_at"] for one in own), default=None),
                    "last_order": max((one["placed_at"] for one in own), default=None),
                }
            )
    return found


def product_sales(tables: dict[str, list[Row]]) -> list[Row]:
    products = {row["id"]: row for row in tables["current.products"]}
    lines = by_key(tables["current.order_lines"], "product_id")
    found = []
    for number in {*products, *(key[0] for key in lines)}:
        own = lines.get((number,), [])
        product = products.get(number, {"sku": None, "name": None, "price": None})
        found.append(
            {
                "product_id": number,
                **{name: product[name] for name in ("sku", "name", "price")},
                "orders": len({line["order_id"] for line in own}),
                "sold": sum(line["quantity"] for line in own),
                "amount": sum((line["quantity"] * line["unit_price"] for line in own), Decimal("0.00")),
            }
        )
    return found


def customer_as_of(tables: dict[str, list[Row]]) -> list[Row]:
    details = {(r["customer_hk"], r["load_date"], r["sequence"]): r for r in tables["vault.sat_customer"]}
    states = {(r["customer_hk"], r["load_date"], r["sequence"]): r for r in tables["vault.sat_customer_status"]}
    found = []
    for row in tables["vault.pit_customer"]:
        detail = details.get((row["customer_hk"], row["sat_customer_load_date"], row["sat_customer_sequence"]), {})
        state = states.get(
            (row["customer_hk"], row["sat_customer_status_load_date"], row["sat_customer_status_sequence"]), {}
        )
        told = {name: detail.get(name) for name in ("email", "name", "city")}
        when = {name: row[name] for name in ("customer_hk", "as_of", "until")}
        found.append({**when, "is_active": state.get("is_active"), **told})
    return found
