"""What a stream may do to a project: messages of 20 MB, a broker that is away or refuses, a source that changes.

What single messages may say is in tests/run/test_odd_messages.py and test_topics.py, which need no server.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from watchers import copied, produce, wait_for, watch

from icefield.engine.intake.topics.broker import Settings
from icefield.engine.intake.topics.client import Client
from icefield.errors import BrokerRefused
from icefield.lake.embedded import EmbeddedLake
from projects import TinyProject, ask, tiny
from servers import Connect, Kafka, Postgres, wait_until
from topics import Message, create_topic
from topics import produce as send

pytestmark = pytest.mark.services

PATIENCE = 60


# --- large messages ----------------------------------------------------------------------------------------------

LARGE = """
from icefield import append, debezium, kafka, table


@table("raw.texts", source=kafka("{topic}", schema="id BIGINT, text STRING"), refresh=append(), otherwise="quarantine")
def texts(messages):
    return messages


@table("raw.events", source=debezium("{topic}"), refresh=append(), otherwise="quarantine")
def events(messages):
    return messages
"""


def test_messages_of_twenty_megabytes_are_rows_and_wait_whole_where_they_are_malformed(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic = create_topic(kafka, config={"max.message.bytes": 33_554_432})
    text = "y" * (20 << 20)
    good = [json.dumps({"id": number, "text": text}).encode() for number in range(4)]
    change = json.dumps({"op": "c", "after": {"id": 9, "text": text}, "source": {"lsn": 1}}).encode()
    bad = json.dumps({"id": 8, "text": text}).encode()[:-1]
    small = b'{"id":7,"text":"z"}'
    send(kafka, topic, [Message(value=value) for value in [small, *good, change, bad, small]])
    project = tiny(tmp_path, LARGE.format(topic=topic), more=_brokers(kafka))
    assert project.run().ok
    rows = project.ask("SELECT id, length(text), md5(text) FROM raw.texts ORDER BY 1")
    whole = (len(text), hashlib.md5(text.encode()).hexdigest())
    assert rows == [*((number, *whole) for number in range(4)), *[(7, 1, hashlib.md5(b"z").hexdigest())] * 2]
    assert _waiting(project, "raw.texts") == {
        hashlib.md5(change).hexdigest(): "malformed: unknown field op",
        hashlib.md5(bad).hexdigest(): "malformed: not a JSON object",
    }
    ((after,),) = project.ask("SELECT after FROM raw.events")
    assert json.loads(after) == {"id": 9, "text": text}
    rejected = _waiting(project, "raw.events")
    assert {hashlib.md5(value).hexdigest() for value in [small, *good, bad]} == set(rejected)


def _waiting(project: TinyProject, table: str) -> dict[str, str]:
    return dict(project.ask(f"SELECT md5(raw), reasons[1] FROM {table}__quarantine"))


def _brokers(kafka: Kafka) -> str:
    return f'[profile.local.kafka]\nbrokers = "{kafka.client()["bootstrap.servers"]}"\n'


# --- brokers -----------------------------------------------------------------------------------------------------

BYTES = """
from icefield import append, kafka, table


@table("raw.bytes", source=kafka("{topic}"), refresh=append())
def as_they_are(messages):
    return messages
"""


def test_a_wrong_password_stops_a_run_and_is_written_nowhere(kafka: Kafka, tmp_path: Path) -> None:
    topic = create_topic(kafka)
    send(kafka, topic, [Message(value=b"1")])
    told = dict(kafka.client("sasl"))
    brokers, password = told.pop("bootstrap.servers"), told.pop("sasl.password")
    options = "\n".join(f'"{key}" = "{value}"' for key, value in told.items())
    section = f'[profile.local.kafka]\nbrokers = "{brokers}"\n[profile.local.kafka.options]\n{options}\n'
    project = tiny(tmp_path, BYTES.format(topic=topic), more=f'{section}"sasl.password" = "{password}"\n')
    assert project.run().ok
    before = project.everything()
    send(kafka, topic, [Message(value=b"2")])
    wrong = "n0t-the-password"
    project.declare(BYTES.format(topic=topic), more=f'{section}"sasl.password" = "{wrong}"\n')
    with pytest.raises(BrokerRefused, match=r"check the user and the password of \[profile.local.kafka\]") as refused:
        project.run()
    assert wrong not in str(refused.value)
    assert project.everything() == before
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "icefield.toml"]
    assert not [path for path in files if wrong.encode() in path.read_bytes()]
    project.declare(BYTES.format(topic=topic), more=f'{section}"sasl.password" = "{password}"\n')
    assert project.run().ok
    assert project.ask("SELECT value FROM raw.bytes ORDER BY 1") == [(b"1",), (b"2",)]


def test_a_watcher_waits_for_a_broker_that_is_away_and_goes_on_when_it_is_back(kafka: Kafka, tmp_path: Path) -> None:
    root = copied("sensors", tmp_path / "sensors")
    topic = f"waits-{tmp_path.name}"
    (root / "readings.py").write_text((root / "readings.py").read_text().replace("sensor-readings", topic))
    sent = produce(root, kafka, tmp_path / "sent.log", "--seconds", "1", "--topic", topic, "--bad", "0")
    assert sent.process.wait(60) == 0, sent.log.read_text()
    kafka.kill()
    try:
        watcher = watch(root, kafka, tmp_path / "watcher.log", "--json")
        wait_for(lambda: len(_failures(watcher.log)) >= 2, "two failures", watcher)
    finally:
        kafka.start()
    lake = EmbeddedLake(root / "lake-kafka")
    wait_for(lambda: "metrics.sensor_minutes" in (lake.pointers() if lake.exists else {}), "a run", watcher)
    assert watcher.stop() == 0
    failures = _failures(watcher.log)
    assert all("Kafka does not answer" in one["error"] for one in failures)
    assert failures[0]["retry_seconds"] < failures[1]["retry_seconds"]
    ((rows,),) = ask(lake.pointers(), "SELECT sum(readings) FROM metrics.sensor_minutes")
    assert rows == 200


def _failures(log: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [one for one in lines if one["event"] == "failure"]


# --- a source that changes ---------------------------------------------------------------------------------------

CAPTURED = """
from icefield import append, by_key, cdc, debezium, expect, lookup, not_null, table, unique

SCHEMA, ALIASES = "{schema}", {aliases}


@table("raw.events", source=debezium("ddl.public.*"), refresh=append(), checks=[not_null("op", "lsn")],
       otherwise="quarantine")
def events(messages):
    return messages


@table("raw.items", source=debezium("ddl.public.items"), refresh=append())
def items(messages):
    return messages


@table("parsed.truncates", inputs={{"events": "raw.items"}}, refresh=append())
def truncates(events):
    return events.where("op = 't'").select("op", "partition", "offset", "lsn", "tx_id", "source_ts")


@table("parsed.items", inputs={{"events": "raw.items", "truncates": lookup("parsed.truncates")}},
       refresh=by_key(**cdc.key_of(SCHEMA, ["id"])),
       checks=[expect("every value fits its column", "misfit IS NULL"),
               expect("every column is declared", "undeclared IS NULL", otherwise="warn")])
def parsed(events, truncates):
    return cdc.parse(events, SCHEMA, ["id"], truncates=truncates, aliases=ALIASES)


@table("current.items", inputs={{"events": "parsed.items"}}, refresh=by_key("id"), checks=[unique("id")])
def current(events):
    names = [part.split()[0] for part in SCHEMA.split(", ")]
    return cdc.latest(events, "id", sequence_by="sequence").select(*names)
"""
FIRST = "id BIGINT, name STRING, note STRING, amount INT"
WIDER = "id BIGINT, name STRING, note STRING, amount BIGINT, extra STRING"
RENAMED = '{"name": ["title", "name"]}'


def test_columns_and_tables_of_the_source_that_come_go_and_change(
    postgres: Postgres, kafka: Kafka, connect: Connect, tmp_path: Path
) -> None:
    source = _Source(postgres, kafka)
    source.execute("CREATE TABLE items (id INT PRIMARY KEY, name TEXT, note TEXT, amount INT)", messages=0)
    source.execute("INSERT INTO items VALUES (1, 'a', 'x', 1), (2, 'b', 'y', 2)", messages=0)
    connect.capture(postgres, "ddl", ["public.*"], database="ddl", publication_autocreate_mode="all_tables")
    source.wait(2)
    project = tiny(tmp_path, CAPTURED.format(schema=FIRST, aliases={}), more=_brokers(kafka))
    assert project.run().ok
    assert current(project) == [(1, "a", "x", 1), (2, "b", "y", 2)]

    source.execute("ALTER TABLE items ADD COLUMN extra TEXT; UPDATE items SET extra = 'e' WHERE id = 1", messages=1)
    source.execute("ALTER TABLE items DROP COLUMN note; UPDATE items SET amount = 3 WHERE id = 1", messages=1)
    source.execute("ALTER TABLE items RENAME name TO title; UPDATE items SET title = 'bb' WHERE id = 2", messages=1)
    result = project.run()
    assert result.ok, result.error
    assert current(project) == [(1, "a", "x", 3), (2, "b", "y", 2)], "nothing is lost, nothing is guessed"
    told = project.ask("SELECT id, undeclared FROM parsed.items WHERE undeclared IS NOT NULL ORDER BY sequence, id")
    assert told == [(1, ["extra"]), (2, ["extra", "title"]), (1, ["extra"])]

    source.execute(
        "ALTER TABLE items ALTER COLUMN amount TYPE BIGINT; UPDATE items SET amount = 3000000000 WHERE id = 2",
        messages=1,
    )
    before = project.everything()
    failed = project.run()
    assert not failed.ok
    assert "every value fits its column" in "".join(one.error or "" for one in failed.tables)
    assert project.everything() == before
    project.declare(CAPTURED.format(schema=WIDER, aliases=RENAMED), more=_brokers(kafka))
    mended = project.run()
    assert mended.ok, mended.error
    assert current(project) == [(1, "a", "x", 3, "e"), (2, "bb", "y", 3_000_000_000, None)]
    rows = postgres.execute("SELECT id, title, amount, extra FROM items ORDER BY id", "ddl").splitlines()
    assert rows == ["1|a|3|e", "2|bb|3000000000|"]

    source.execute("TRUNCATE items; INSERT INTO items VALUES (4, 'd', 4)", messages=2)
    assert project.run().ok
    assert current(project) == [(4, "d", None, 4, None)]

    source.execute("CREATE TABLE boxes (id INT PRIMARY KEY)", messages=0)
    source.execute("INSERT INTO boxes VALUES (5)", messages=0)
    source.wait(1, "ddl.public.boxes")
    assert project.run().ok
    found = project.ask("SELECT topic, count(*) FROM raw.events GROUP BY 1 ORDER BY 1")
    assert found == [("ddl.public.boxes", 1), ("ddl.public.items", source.messages)]
    connect.release(postgres, "ddl")


def current(project: TinyProject) -> list[tuple[Any, ...]]:
    return project.ask("SELECT * FROM current.items ORDER BY id")


class _Source:
    """A database, and how many messages its table has led to."""

    def __init__(self, postgres: Postgres, kafka: Kafka) -> None:
        self.postgres, self.kafka, self.messages = postgres, kafka, 0
        postgres.execute("CREATE DATABASE ddl")

    def execute(self, statements: str, messages: int) -> None:
        """Carries out statements one by one, and waits until so many messages more have come."""
        for statement in statements.split("; "):
            self.postgres.execute(statement, "ddl")
        if messages:
            self.wait(messages)

    def wait(self, messages: int, topic: str = "ddl.public.items") -> None:
        if topic.endswith("items"):
            messages = self.messages = self.messages + messages
        wait_until(lambda: self._end(topic) >= messages, PATIENCE, f"{messages} messages of {topic}")

    def _end(self, topic: str) -> int:
        found = Client(Settings(brokers=str(self.kafka.client()["bootstrap.servers"]))).topics(topic)
        return found[topic].partitions[0].high if topic in found else 0
