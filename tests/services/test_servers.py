"""Each server starts and answers, keeps its data through `kill -9`, and leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import KafkaException

from servers import Connect, Kafka, Postgres, ServiceError, wait_until
from topics import (
    Message,
    admin,
    consume,
    create_topic,
    delete_topic,
    end_offset,
    produce,
    produce_in_transaction,
    producer,
)

pytestmark = pytest.mark.services

SCRIPT = Path(__file__).parents[2] / "scripts" / "services.py"
SECONDS = 30


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


# --- Kafka -----------------------------------------------------------------------------------------------------------


def test_kafka_delivers_what_was_produced(kafka: Kafka) -> None:
    topic = create_topic(kafka, partitions=2)
    sent = [
        Message(value=b"one", key=b"a", headers=(("h", b"1"), ("none", None)), timestamp=1_700_000_000_000),
        Message(value=None, key=b"a", timestamp=1_700_000_000_001),
        Message(value=b"other", partition=1, timestamp=1_700_000_000_002),
    ]
    produce(kafka, topic, sent)
    found = consume(kafka, topic, 3, partitions=2)
    assert [(m.partition, m.offset) for m in sorted(found, key=lambda m: (m.partition, m.offset))] == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]
    plain = {(m.value, m.key, m.partition, m.headers, m.timestamp) for m in found}
    assert plain == {(m.value, m.key, m.partition, m.headers, m.timestamp) for m in sent}


def test_kafka_hides_messages_of_aborted_transactions(kafka: Kafka) -> None:
    topic = create_topic(kafka)
    produce_in_transaction(kafka, topic, [Message(value=b"first")])
    produce_in_transaction(kafka, topic, [Message(value=b"never")], commit=False)
    produce_in_transaction(kafka, topic, [Message(value=b"second")])
    assert values(consume(kafka, topic, 2)) == [b"first", b"second"]
    every = consume(kafka, topic, 3, **{"isolation.level": "read_uncommitted"})
    assert values(every) == [b"first", b"never", b"second"]


def test_kafka_takes_messages_of_20_megabytes(kafka: Kafka) -> None:
    topic = create_topic(kafka)
    large = os.urandom(20_000_000)
    produce(kafka, topic, [Message(value=large)])
    assert values(consume(kafka, topic, 1)) == [large]


def test_a_topic_created_again_is_empty(kafka: Kafka) -> None:
    topic = create_topic(kafka, config={"retention.ms": 60_000})
    produce(kafka, topic, [Message(value=b"old")])
    delete_topic(kafka, topic)
    create_topic(kafka, topic)
    produce(kafka, topic, [Message(value=b"new")])
    assert values(consume(kafka, topic, 1)) == [b"new"]


@pytest.mark.parametrize("listener", ["sasl", "tls"])
def test_secured_listeners_take_the_password(kafka: Kafka, listener: str) -> None:
    topic = create_topic(kafka)
    client = producer(kafka, **kafka.client(listener))
    client.produce(topic, b"secret")
    assert client.flush(SECONDS) == 0
    assert values(consume(kafka, topic, 1, **kafka.client(listener))) == [b"secret"]


@pytest.mark.parametrize("listener", ["sasl", "tls"])
def test_secured_listeners_refuse_a_wrong_password(kafka: Kafka, listener: str) -> None:
    seen = []
    wrong = {**kafka.client(listener), "sasl.password": "wrong", "error_cb": seen.append, "log_level": 0}
    client = admin(kafka, **wrong)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    client.poll(0)
    assert "_AUTHENTICATION" in {error.name() for error in seen}


def test_a_client_that_does_not_trust_the_certificate_refuses_the_broker(kafka: Kafka) -> None:
    seen = []
    strange = {key: value for key, value in kafka.client("tls").items() if key != "ssl.ca.location"}
    client = admin(kafka, **strange, error_cb=seen.append, log_level=0)
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)
    client.poll(0)
    assert "_SSL" in {error.name() for error in seen}


def test_kafka_keeps_its_messages_when_killed(kafka: Kafka) -> None:
    topic = create_topic(kafka)
    produce(kafka, topic, [Message(value=b"before")])
    address, pid = kafka.bootstrap, kafka.pid
    kafka.kill()
    assert not kafka.running
    kafka.start()
    assert kafka.pid != pid
    assert kafka.bootstrap == address
    produce(kafka, topic, [Message(value=b"after")])
    assert values(consume(kafka, topic, 2)) == [b"before", b"after"]


# --- Postgres --------------------------------------------------------------------------------------------------------


def test_postgres_answers_and_can_be_captured(postgres: Postgres) -> None:
    with psycopg.connect(postgres.url()) as connection:
        assert connection.info.server_version // 10_000 == 16
        assert connection.execute("SHOW wal_level").fetchone() == ("logical",)
    assert postgres.execute("SELECT 1, 'two' UNION ALL SELECT 3, NULL ORDER BY 1") == "1|two\n3|"


def test_postgres_refuses_a_wrong_password(postgres: Postgres) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres.url().replace(postgres.password, "wrong"))


def test_postgres_says_what_is_wrong_with_a_statement(postgres: Postgres) -> None:
    with pytest.raises(ServiceError, match='relation "nowhere" does not exist'):
        postgres.execute("SELECT * FROM nowhere")


def test_postgres_keeps_committed_rows_when_killed(postgres: Postgres) -> None:
    with database(postgres) as name:
        postgres.execute("CREATE TABLE kept (id INT); INSERT INTO kept VALUES (1)", name)
        with psycopg.connect(postgres.url(name)) as connection:
            connection.execute("INSERT INTO kept VALUES (2)")
            postgres.kill()
            postgres.start()
            connection.close()
        assert postgres.execute("SELECT * FROM kept", name) == "1"


# --- Connect with Debezium -------------------------------------------------------------------------------------------


@contextmanager
def database(postgres: Postgres) -> Iterator[str]:
    """A database of its own, dropped afterwards."""
    name = f"shop_{uuid.uuid4().hex[:8]}"
    postgres.execute(f"CREATE DATABASE {name}")
    yield name
    postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def captured_orders(postgres: Postgres, connect: Connect) -> Iterator[tuple[str, str]]:
    """A database with a captured table of one order, and the table's topic."""
    with database(postgres) as name:
        postgres.execute(
            "CREATE TABLE orders (id INT PRIMARY KEY, price NUMERIC(8,2), note TEXT DEFAULT 'none');"
            "INSERT INTO orders VALUES (1, 9.90, NULL)",
            name,
        )
        connect.capture(postgres, name, ["public.orders"], database=name)
        yield name, f"{name}.public.orders"
        connect.release(postgres, name)


def events(messages: list[Message]) -> list[tuple[str, dict | None]]:
    """Operation and row of each event; tombstones left out."""
    parsed = [json.loads(message.value) for message in messages if message.value is not None]
    return [(event["op"], event["after"]) for event in parsed]


def test_an_insert_arrives_in_its_topic(kafka: Kafka, postgres: Postgres, connect: Connect) -> None:
    with captured_orders(postgres, connect) as (name, topic):
        postgres.execute("INSERT INTO orders (id, price) VALUES (2, 0.50)", name)
        assert events(consume(kafka, topic, 2)) == [
            ("r", {"id": 1, "price": "9.90", "note": None}),
            ("c", {"id": 2, "price": "0.50", "note": "none"}),
        ]


def test_a_truncate_right_after_the_capture_finds_the_snapshot_complete(
    kafka: Kafka, postgres: Postgres, connect: Connect
) -> None:
    with captured_orders(postgres, connect) as (name, topic):
        postgres.execute("TRUNCATE orders", name)
        assert [op for op, _ in events(consume(kafka, topic, 2))] == ["r", "t"]


def test_connect_continues_its_captures_when_killed(kafka: Kafka, postgres: Postgres, connect: Connect) -> None:
    with captured_orders(postgres, connect) as (name, topic):
        consume(kafka, topic, 1)
        connect.kill()
        postgres.execute("INSERT INTO orders VALUES (2, 1.00, 'while it was away')", name)
        connect.start()

        def delivered() -> set[int]:  # it may send events again
            return {row["id"] for _, row in events(consume(kafka, topic, end_offset(kafka, topic))) if row}

        wait_until(lambda: delivered() == {1, 2}, SECONDS, "the second order")


def test_a_capture_that_cannot_work_says_why(postgres: Postgres, connect: Connect) -> None:
    with database(postgres) as name:
        with pytest.raises(ServiceError, match="has failed"):
            connect.capture(postgres, name, ["public.nowhere"], database=name)
        connect.release(postgres, name)
    assert connect.answers()


# --- the command -----------------------------------------------------------------------------------------------------


@contextmanager
def started(state: Path, *names: str) -> Iterator[subprocess.Popen[str]]:
    """`scripts/services.py start`, once it has said that all run."""
    command = [sys.executable, str(SCRIPT), "--state", str(state)]
    with subprocess.Popen([*command, "start", *names], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            while (line := process.stdout.readline()) and "Ctrl-C" not in line:
                pass
            assert "Ctrl-C" in line, "it did not start"
            yield process
        finally:
            subprocess.run([*command, "stop"], check=True)
            process.kill()


def known(state: Path) -> list[dict]:
    return json.loads((state / "running.json").read_text())["services"]


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def assert_nothing_is_left(services: list[dict]) -> None:
    for service in services:
        wait_until(lambda pid=service["pid"]: not alive(pid), SECONDS, "the system to remove the process")
        assert not Path(service["folder"]).exists()


def stop(state: Path) -> str:
    command = [sys.executable, str(SCRIPT), "--state", str(state), "stop"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.usefixtures("connect", "postgres")  # says why, where servers cannot be had
def test_stop_leaves_no_process(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        services = known(tmp_path)
        assert [service["name"] for service in services] == ["postgres", "kafka", "connect"]
        assert "Stopped postgres, kafka, connect." in stop(tmp_path)
        assert process.wait(SECONDS) == 0
    assert_nothing_is_left(services)
    assert "No services are running." in stop(tmp_path)


@pytest.mark.usefixtures("postgres")
def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    with started(tmp_path, "postgres") as process:
        services = known(tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    assert_nothing_is_left(services)


@pytest.mark.usefixtures("postgres")
def test_stop_finds_servers_whose_starter_was_killed(tmp_path: Path) -> None:
    with started(tmp_path, "postgres") as process:
        services = known(tmp_path)
        process.kill()
        process.wait()
        assert alive(services[0]["pid"])
        stop(tmp_path)
    assert_nothing_is_left(services)


@pytest.mark.usefixtures("postgres")
def test_services_are_started_once(tmp_path: Path) -> None:
    with started(tmp_path, "postgres"):
        command = [sys.executable, str(SCRIPT), "--state", str(tmp_path), "start"]
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert second.returncode == 2
        assert "already running" in second.stderr
