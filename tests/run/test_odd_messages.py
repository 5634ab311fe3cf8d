"""Runs over messages that nobody should send: each is a row or waits with its reason, and the stream goes on."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from icefield.engine import limits
from icefield.engine.limits import Limits
from odd_messages import CHANGE, KEYS, READING, SCHEMA, TIMES, VALUES, damaged
from projects import TinyProject, tiny
from recordings import record

pytestmark = pytest.mark.spark

TABLES = f"""
from icefield import append, debezium, kafka, table


@table("raw.readings", source=kafka("odd", schema="{SCHEMA}"), refresh=append(), otherwise="quarantine")
def readings(messages):
    return messages


@table("raw.events", source=debezium("odd"), refresh=append(), otherwise="quarantine")
def events(messages):
    return messages


@table("raw.bytes", source=kafka("odd"), refresh=append())
def as_they_are(messages):
    return messages
"""
WAYS = {"driver": Limits(), "tasks": Limits(driver_messages=-1, split_messages=100, driver_rejects=0)}


def line(offset: int, value: bytes | None, key: bytes | None = None, time: int | None = 0) -> str:
    told: dict[str, object] = {"partition": 0, "offset": offset, "timestamp": time}
    if value is not None:
        told["value_base64"] = base64.b64encode(value).decode()
    if key is not None:
        told["key_base64"] = base64.b64encode(key).decode()
    return json.dumps(told)


def count(project: TinyProject, table: str) -> int:
    there = table in project.lake.pointers()
    return int(project.ask(f"SELECT count(*) FROM {table}")[0][0]) if there else 0


@pytest.mark.parametrize("way", WAYS)
def test_every_message_is_a_row_or_waits_and_the_next_run_goes_on(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LIMITS", WAYS[way])
    project = tiny(tmp_path, TABLES, more='[profile.local.kafka]\nrecording = "recorded"\n')
    odd = [(value, None, 0) for value in [*VALUES, *damaged(3, 300)]]
    odd += [(CHANGE, key, time) for key in KEYS for time in TIMES]
    lines = [line(at, *one) for at, one in enumerate(odd)]
    record(tmp_path / "recorded", "odd", "0", lines)
    result = project.run()
    assert result.ok, result.error
    for table, expected in {"raw.readings": len(odd), "raw.events": len(odd) - 1, "raw.bytes": len(odd)}.items():
        assert count(project, table) + count(project, f"{table}__quarantine") == expected, table
    assert project.ask("SELECT count(*) FROM raw.readings__quarantine WHERE raw IS NULL") == [(0,)]
    held = project.ask('SELECT "offset", value FROM raw.bytes ORDER BY 1')
    assert [value for _, value in held] == [value for value, _, _ in odd]
    record(tmp_path / "recorded", "odd", "1", [line(len(odd), READING)])
    assert project.run().ok
    assert project.ask(f'SELECT name FROM raw.readings WHERE "offset" = {len(odd)}') == [("a",)]
