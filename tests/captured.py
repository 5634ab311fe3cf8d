"""Debezium's messages as rows, as `debezium()` hands them over; and events made up for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

EVENTS = (
    "topic STRING, partition INT, offset BIGINT, key STRING, op STRING, lsn BIGINT, tx_id BIGINT, source_ts TIMESTAMP,"
    " before STRING, after STRING, is_snapshot BOOLEAN, ingested_at TIMESTAMP"
)
COLUMNS = [part.split()[0] for part in EVENTS.split(", ")]
ARRIVED = datetime(2026, 11, 17, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLACEHOLDER = "__debezium_unavailable_value"


def recorded(file: Path) -> Iterator[dict[str, Any]]:
    """The messages of a recording, one a line."""
    with file.open(encoding="utf-8") as lines:
        yield from (json.loads(line) for line in lines if line.strip())


def events_of(messages: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Messages as events; tombstones are none."""
    found = []
    for message in messages:
        if message["value"] is None:
            continue
        value = json.loads(message["value"])
        value = value.get("payload", value)
        source = value["source"]
        told = {
            **{name: message.get(name) for name in ("topic", "partition", "offset", "key")},
            "op": value["op"],
            "lsn": source["lsn"],
            "tx_id": source["txId"],
            "source_ts": EPOCH + timedelta(microseconds=source.get("ts_us") or source["ts_ms"] * 1000),
            "before": text(value["before"]),
            "after": text(value["after"]),
            "is_snapshot": source.get("snapshot") not in (None, "false", False),
            "ingested_at": ARRIVED,
        }
        found.append(tuple(told[name] for name in COLUMNS))
    return found


def text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def event(
    op: str,
    key: dict[str, Any] | None,
    after: dict[str, Any] | None = None,
    *,
    at: int,
    lsn: int | None = None,
    partition: int = 0,
    seconds: float | None = None,
    before: dict[str, Any] | None = None,
) -> tuple[Any, ...]:
    """An event at an offset; its LSN and its time follow from that unless they are given."""
    when = EPOCH + timedelta(days=20000, seconds=at if seconds is None else seconds)
    told = 1000 + at if lsn is None else lsn
    whole = None if after is None else {**(key or {}), **after}
    row = (
        "shop.public.t",
        partition,
        at,
        text(key),
        op,
        told,
        told,
        when,
        text(before),
        text(whole),
        op == "r",
        ARRIVED,
    )
    return row
