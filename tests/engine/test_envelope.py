"""Debezium's envelopes, taken apart: plain, beside a schema, of every operation, and what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from icefield.engine.intake.topics.envelope import NoChangeError, parse_change, parse_key

SHARED = Path(__file__).parents[3] / "shared" / "data" / "cdc"


def envelope(op: str = "u", **other: Any) -> str:
    source = {"lsn": 24023128, "txId": 555, "ts_ms": 1559033904863, "snapshot": "false"}
    return json.dumps({"before": None, "after": {"id": 1}, "source": source, "op": op, "ts_ms": 1, **other})


def test_a_change_says_what_happened_when_and_where() -> None:
    change = parse_change(envelope())
    assert change._asdict() == {
        "op": "u", "lsn": 24023128, "tx_id": 555, "source_us": 1559033904863000, "before": None,
        "after": '{"id": 1}', "is_snapshot": False,
    }  # fmt: skip


def test_rows_are_handed_on_as_they_are_written() -> None:
    row = '{"price" : 1.10, "big":12345678901234567890, "t":"\\u00e9 {\\"}", "n":1e400}'
    change = parse_change(f' {{ "op":"c","after" : {row} ,"source":{{}}}} \n')
    assert change.after == row


def test_a_schema_beside_the_payload_is_taken_off_values_and_keys() -> None:
    told = f'{{"schema":{{"type":"struct"}},"payload":{envelope("d")}}}'
    assert parse_change(told).op == "d"
    assert parse_key('{"schema":{},"payload":{"id":7}}') == '{"id":7}'
    assert parse_key('{"id":7}') == '{"id":7}'
    assert parse_key('{"payload":"x"}') == '{"payload":"x"}', "a column may be called so"


@pytest.mark.parametrize("snapshot", ["true", "first", "last", "first_in_data_collection", "incremental", True])
def test_rows_of_snapshots_are_told(snapshot: object) -> None:
    assert parse_change(envelope("r", source={"snapshot": snapshot})).is_snapshot is True


@pytest.mark.parametrize("snapshot", [None, "false", False])
def test_rows_of_the_stream_are_told(snapshot: object) -> None:
    assert parse_change(envelope("c", source={"snapshot": snapshot})).is_snapshot is False


def test_the_finest_time_counts() -> None:
    assert parse_change(envelope(source={"ts_ms": 1000, "ts_us": 1000123})).source_us == 1000123
    assert parse_change(envelope(source={"ts_ns": 1000123456})).source_us == 1000123
    assert parse_change(envelope(source={})).source_us is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a JSON object"),
        ("null", "not a JSON object"),
        ('{"op":"c"', "not a JSON object"),
        ("{}", "it has no op"),
        ('{"a":1}', "it has no op"),
        ('{"op":"x"}', "unknown op 'x'"),
        ('{"op":"m","message":{}}', "unknown op 'm'"),
        ('{"op":"c","after":[1]}', "after is not an object"),
        ('{"op":"c","source":{"lsn":"a"}}', "lsn is not a whole number"),
        ('{"op":"c","source":{"lsn":true}}', "lsn is not a whole number"),
        ('{"op":"c","source":{"ts_ms":9223372036854775807}}', "ts_ms is not in the years 1 to 9999"),
        ('{"op":["c"]}', "unknown op"),
        ('{"op":{"c":1}}', "unknown op"),
        ('{"op":"c"} {"op":"d"}', "there is more behind it"),
        ('{"op":"c",}', "not a JSON object"),
    ],
)
def test_what_is_no_change_says_why(text: str, told: str) -> None:
    with pytest.raises(NoChangeError, match=told):
        parse_change(text)


def test_messages_of_real_connectors_are_understood() -> None:
    if not SHARED.is_dir():
        return
    for file in ("debezium-postgres-data-schema-exclude", "debezium-postgres-data-schema-include"):
        lines = (SHARED / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()
        changes = [parse_change(line) for line in lines]
        assert [change.op for change in changes].count("d") == 1
        assert len(changes) == 16
        for line, change in zip(lines, changes, strict=True):
            told = json.loads(line)
            told = told.get("payload", told)
            assert [change.after and json.loads(change.after), change.lsn] == [told["after"], told["source"]["lsn"]]
