"""Runs over recorded topics: what is taken in, rejected, lost, rebuilt and replayed; by the driver and by tasks."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from icefield.engine import limits
from icefield.engine.limits import Limits
from icefield.errors import MessagesLost, NoBroker
from icefield.lake.catalog import LAKE
from projects import TinyProject, tiny
from recordings import envelope, record

pytestmark = pytest.mark.spark

TABLES = """
from pyspark.sql import functions as F
from icefield import append, by_key, debezium, expect, kafka, not_null, table, unique


@table("raw.readings", source=kafka("readings", schema="sensor STRING, value DOUBLE, at TIMESTAMP"{options}),
       refresh=append(), checks=[not_null("sensor"), expect("value is possible", "value < 100"){unique}],
       otherwise="quarantine")
def readings(messages):
    return messages{code}


@table("gold.by_sensor", refresh=by_key("sensor"))
def by_sensor(readings):
    return readings.groupBy("sensor").agg(F.count("*").alias("n"), F.max("value").alias("highest"))
"""
RECORDING = '[profile.local.kafka]\nrecording = "recorded"\n'
#: By the driver; by Spark's tasks, some messages each; by the driver until there are too many bytes.
WAYS = {
    "driver": Limits(),
    "tasks": Limits(driver_messages=-1, split_messages=3),
    "tasks, also what is rejected": Limits(driver_messages=-1, split_messages=3, driver_rejects=0),
    "too many bytes": Limits(driver_message_bytes=100, local_rows=0),
}


def declared(root: Path, *, options: str = "", unique: str = "", code: str = "", more: str = RECORDING) -> TinyProject:
    return tiny(root, TABLES.format(options=options, unique=unique, code=code), more=more)


def reading(sensor: str, value: Any, second: int = 0) -> dict[str, Any]:
    return {"sensor": sensor, "value": value, "at": f"2026-11-15T12:00:{second:02d}Z"}


BAD: list[Any] = [
    "{no json", "", None, "[1]", reading("a", "warm"), reading("a", 100.5), reading(None, 1.0),  # type: ignore[arg-type]
    {**reading("a", 1.0), "more": 1}, {"sensor": ["a"], "value": 1}, {"sensor": "only"},
]  # fmt: skip


def test_messages_come_in_with_their_origin_and_bad_ones_wait_with_their_bytes(tmp_path: Path) -> None:
    expected: dict[str, Any] = {}
    for way, chosen in WAYS.items():
        root = tmp_path / way.replace(" ", "-").replace(",", "")
        project = declared(root)
        lines = [
            envelope(n, value, key="k") for n, value in enumerate([*BAD, *(reading("b", n / 2) for n in range(8))])
        ]
        record(root / "recorded", "readings", "0", lines)
        record(root / "recorded", "readings", "1", [envelope(7, reading("c", 1.5), partition=2)])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "LIMITS", chosen)
            assert project.run().ok
        found = project.everything()
        expected = expected or found
        assert found == expected, way
        _require_origin(project)
        assert project.run().status == "nothing new"


def test_a_large_message_comes_in_or_waits_with_all_its_bytes(tmp_path: Path) -> None:
    """Kafka forgets what is not kept here."""
    project = declared(tmp_path)
    good, bad = json.dumps(reading("a", 1.0)) + " " * (3 << 20), '{"sensor": "' + "x" * (3 << 20)
    record(tmp_path / "recorded", "readings", "0", [envelope(0, good), envelope(1, bad)])
    assert project.run().ok
    assert project.ask("SELECT value FROM raw.readings") == [(1.0,)]
    assert project.ask("SELECT octet_length(raw) FROM raw.readings__quarantine") == [(len(bad),)]


def _require_origin(project: TinyProject) -> None:
    rows = project.ask('SELECT sensor, value, topic, partition, "offset", epoch_ms(kafka_timestamp) FROM raw.readings')
    assert Counter(rows) == Counter(
        [("b", n / 2, "readings", 0, n + 10, 1_790_000_000_010 + n) for n in range(8)]
        + [("c", 1.5, "readings", 2, 7, 1_790_000_000_007), ("only", None, "readings", 0, 9, 1_790_000_000_009)]
        + [('["a"]', 1.0, "readings", 0, 8, 1_790_000_000_008)]
    )
    waiting = project.ask("SELECT line, reasons, raw FROM raw.readings__quarantine ORDER BY line")
    assert [(line, reasons) for line, reasons, _ in waiting] == [
        (0, ["malformed: not a JSON object"]), (1, ["malformed: the message is empty"]),
        (2, ["malformed: the message has no value"]), (3, ["malformed: not a JSON object"]),
        (4, ["malformed: value is not a valid DOUBLE"]), (5, ["value is possible"]), (6, ["sensor is not null"]),
        (7, ["malformed: unknown field more"]),
    ]  # fmt: skip
    assert waiting[0][2] == b"{no json"
    assert waiting[5][2] == b'{"sensor": "a", "value": 100.5, "at": "2026-11-15T12:00:00Z"}'
    taken = project.ask("SELECT topic, partition, start_offset, end_offset, messages, arrival, status FROM ops.offsets")
    assert Counter(taken) == Counter([("readings", 0, 0, 18, 18, 0, "taken"), ("readings", 2, 7, 8, 1, 1, "taken")])


def test_new_messages_are_appended_and_a_rebuild_keeps_the_order_of_arrival(tmp_path: Path) -> None:
    """Partition 1 comes first, so its row with id `a` stays, though a rebuild reads partition 0 before it."""
    project = declared(tmp_path, unique=', unique("sensor")')
    record(tmp_path / "recorded", "readings", "0", [envelope(0, reading("a", 1.0), partition=1)])
    project.run()
    record(tmp_path / "recorded", "readings", "1", [envelope(0, reading("a", 2.0)), envelope(1, reading("b", 3.0))])
    result = project.run()
    assert {one.table: one.action for one in result.tables} == {"raw.readings": "append", "gold.by_sensor": "update"}
    before = project.everything()
    assert project.ask("SELECT sensor, value FROM raw.readings ORDER BY 1") == [("a", 1.0), ("b", 3.0)]
    times = project.ask("SELECT sensor, epoch_ms(ingested_at) FROM raw.readings ORDER BY 1")
    rebuilt = project.run(full_refresh=True)
    assert rebuilt.ok
    assert project.everything() == before
    assert project.ask("SELECT sensor, epoch_ms(ingested_at) FROM raw.readings ORDER BY 1") == times


def test_a_run_takes_in_at_most_so_many_messages_and_the_next_one_the_rest(tmp_path: Path) -> None:
    project = declared(tmp_path, options=", max_per_run=4")
    lines = [envelope(n, reading("a", n), partition=n % 2) for n in range(0, 10)]
    record(tmp_path / "recorded", "readings", "0", lines)
    counts = []
    while (result := project.run()).status == "published":
        counts.append(result.tables[0].rows_added)
    assert sum(counts) == 10
    assert max(counts) <= 4
    assert project.run(max_rows=1).status == "nothing new"


def test_lost_messages_stop_the_run_until_a_person_accepts_it(tmp_path: Path) -> None:
    project = declared(tmp_path)
    first = record(tmp_path / "recorded", "readings", "0", [envelope(0, reading("a", 1.0))])
    record(tmp_path / "recorded", "readings", "9", [envelope(1, reading("a", 2.0))])
    project.run()
    before = project.everything()
    record(tmp_path / "recorded", "readings", "9", [envelope(5, reading("a", 3.0))])
    first.unlink()
    with pytest.raises(MessagesLost) as told:
        project.run()
    assert "topic readings was deleted and created again" in str(told.value)
    assert project.everything() == before
    accepted = project.run(accept=("raw.readings",))
    assert accepted.ok
    assert "loss accepted: topic readings was deleted and created again" in accepted.tables[0].reason
    assert project.ask("SELECT value FROM raw.readings ORDER BY 1") == [(1.0,), (2.0,), (3.0,)]
    assert project.ask("SELECT detail FROM ops.offsets WHERE status = 'lost'") == [
        ("topic readings was deleted and created again",)
    ]
    assert project.run().status == "nothing new"
    with pytest.raises(MessagesLost, match="must be rebuilt"):
        project.run(full_refresh=True)


def test_changed_code_needs_messages_that_are_still_there_or_consent(tmp_path: Path) -> None:
    project = declared(tmp_path)
    file = record(tmp_path / "recorded", "readings", "0", [envelope(n, reading("a", n)) for n in range(4)])
    project.run()
    kept = file.read_text().splitlines()
    project.declare(TABLES.format(options="", unique="", code='.withColumn("x", F.lit(1))'), more=RECORDING)
    file.write_text("\n".join([kept[0], *kept[3:]]) + "\n")  # as compaction does
    result = project.run()
    assert "Kafka no longer has 2 messages that it took in" in result.error
    assert project.run(accept=("raw.readings",)).ok
    assert project.ask("SELECT count(*) FROM raw.readings") == [(4,)]


def test_holes_in_what_is_new_are_no_loss(tmp_path: Path) -> None:
    project = declared(tmp_path)
    record(tmp_path / "recorded", "readings", "0", [envelope(n, reading("a", n)) for n in (0, 3, 9)])
    assert project.run().ok
    assert project.run(full_refresh=True).ok
    assert project.ask("SELECT count(*) FROM raw.readings") == [(3,)]


@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_a_table_that_was_dropped_takes_in_every_message_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(limits, "LIMITS", WAYS[way])
    project = declared(tmp_path)
    record(tmp_path / "recorded", "readings", "0", [envelope(n, reading("a", n)) for n in range(3)])
    assert project.run().ok
    project.lake.catalog.unpoint(LAKE, "raw.readings")
    assert project.run().ok
    assert project.ask("SELECT count(*), max(value) FROM raw.readings") == [(3, 2.0)]
    record(tmp_path / "recorded", "readings", "1", [envelope(3, reading("a", 3.0))])
    assert project.run().ok
    assert project.run(full_refresh=True).ok
    assert project.ask("SELECT count(*), max(value) FROM raw.readings") == [(4, 3.0)]
    assert project.ask("SELECT count(DISTINCT arrival), count(*) FROM ops.offsets WHERE status = 'taken'") == [(3, 3)]


def test_a_topic_that_is_created_again_while_it_is_read_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from icefield.engine.intake.topics import intake

    project = declared(tmp_path)
    record(tmp_path / "recorded", "readings", "0", [envelope(n, reading("a", n)) for n in range(3)])
    assert project.run().ok
    record(tmp_path / "recorded", "readings", "1", [envelope(3, reading("a", 3.0))])
    real = intake.read_range

    def recreated(*given: Any) -> Any:
        record(tmp_path / "recorded", "readings", "0", [envelope(n, reading("z", n)) for n in range(5)])
        return real(*given)

    monkeypatch.setattr(intake, "read_range", recreated)
    assert "readings was deleted while it was read" in project.run().error
    assert project.ask("SELECT count(*) FROM raw.readings") == [(3,)]


def test_waiting_messages_are_replayed_though_kafka_no_longer_has_them(tmp_path: Path) -> None:
    from icefield.graph.state import Repair

    project = declared(tmp_path)
    first = record(tmp_path / "recorded", "readings", "0", [envelope(0, reading("a", 1.0))])
    record(tmp_path / "recorded", "readings", "1", [envelope(1, reading("a", 150.0))])
    project.run()
    record(tmp_path / "recorded", "readings", "2", [envelope(2, reading("b", 7.0))])
    repair = Repair(table="raw.readings", kind="replay", where="value > 100", assign=(("value", "value / 10"),))
    result = project.run(repairs=(repair,))
    assert result.ok, result.error
    assert result.replayed[0].moved == 1
    assert project.ask("SELECT value FROM raw.readings ORDER BY 1") == [(1.0,), (15.0,)], (
        "what came waits for the next run"
    )
    project.run()
    assert project.ask("SELECT value FROM raw.readings ORDER BY 1") == [(1.0,), (7.0,), (15.0,)]
    assert project.run(full_refresh=True).ok
    assert project.ask("SELECT value FROM raw.readings ORDER BY 1") == [(1.0,), (7.0,), (15.0,)], "the repair counts on"
    assert first.exists()


def test_messages_without_a_schema_and_parts_of_messages_are_handed_over(tmp_path: Path) -> None:
    source = """
    from icefield import append, kafka, table

    @table("raw.bytes", source=kafka("in-*"), refresh=append())
    def as_they_are(messages):
        return messages

    @table("raw.objects", source=kafka("in-a", schema="x INT", include=["key", "headers"]), refresh=append())
    def objects(messages):
        return messages
    """
    project = tiny(tmp_path, source, more=RECORDING)
    with_headers = (
        '{"partition":0,"offset":1,"timestamp":5,"key":"k","headers":[["h","v"],["h",null]],"value":"{\\"x\\":1}"}'
    )
    record(tmp_path / "recorded", "in-a", "0", [with_headers, envelope(2, {"x": 2})])
    record(tmp_path / "recorded", "in-b", "0", ['{"partition":0,"offset":0,"value_base64":"/w=="}', envelope(1, None)])
    assert project.run().ok
    bytes_ = project.ask('SELECT topic, "offset", key, value FROM raw.bytes')
    assert Counter(bytes_) == Counter(
        [
            ("in-a", 1, b"k", b'{"x":1}'),
            ("in-a", 2, None, b'{"x": 2}'),
            ("in-b", 0, None, b"\xff"),
            ("in-b", 1, None, None),
        ]
    )
    objects = project.ask("SELECT x, key, headers FROM raw.objects ORDER BY x")
    assert objects == [(1, b"k", [{"key": "h", "value": b"v"}, {"key": "h", "value": None}]), (2, None, None)]


def test_changes_of_a_database_come_in_and_tombstones_are_skipped(tmp_path: Path) -> None:
    source = """
    from icefield import append, debezium, not_null, table

    @table("raw.events", source=debezium("shop.public.items"), refresh=append(), checks=[not_null("op")],
           otherwise="quarantine")
    def events(messages):
        return messages
    """
    project = tiny(tmp_path, source, more=RECORDING)
    change = {
        "op": "c",
        "before": None,
        "after": {"id": 1, "p": "1.10"},
        "source": {"lsn": 7, "txId": 3, "ts_ms": 1000},
    }
    deleted = {"op": "d", "before": {"id": 1}, "after": None, "source": {"lsn": 8, "txId": 4, "ts_us": 1_000_001}}
    lines = [
        envelope(0, change, key='{"id":1}'), envelope(1, deleted, key='{"id":1}'), envelope(2, None, key='{"id":1}'),
        envelope(3, {"op": "x"}), envelope(4, "nothing"),
    ]  # fmt: skip
    record(tmp_path / "recorded", "shop.public.items", "0", lines)
    assert project.run().ok
    rows = project.ask(
        'SELECT "offset", key, op, lsn, tx_id, epoch_us(source_ts), before, after, is_snapshot FROM raw.events'
    )
    assert Counter(rows) == Counter(
        [
            (0, '{"id":1}', "c", 7, 3, 1_000_000, None, '{"id": 1, "p": "1.10"}', False),
            (1, '{"id":1}', "d", 8, 4, 1_000_001, '{"id": 1}', None, False),
        ]
    )
    waiting = project.ask("SELECT line, reasons FROM raw.events__quarantine ORDER BY line")
    assert waiting == [(3, ["malformed: unknown op 'x'"]), (4, ["malformed: not a JSON object"])]
    assert project.ask("SELECT end_offset, messages FROM ops.offsets") == [(5, 5)], "a tombstone is a message"


def test_a_profile_without_a_broker_says_what_to_write(tmp_path: Path) -> None:
    project = declared(tmp_path, more="")
    with pytest.raises(NoBroker, match="names no broker"):
        project.run()
