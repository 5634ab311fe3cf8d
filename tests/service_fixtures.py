"""Real servers for tests, each started once a session when the first test asks for it.

A server that cannot be fetched or started skips its tests and says why; in CI a skip is a failure. A test may kill one
(`kafka.kill()`) and must start it again (`kafka.start()`): addresses and data stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from environments import EnvironmentUnavailable, environment
from servers import Connect, Kafka, Postgres, Service, ServiceError, start_connect, start_kafka, start_postgres

S = TypeVar("S", bound=Service)


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A broker; `topics.py` has functions to create topics, produce and consume."""
    yield from _started("Kafka", start_kafka)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A database server with logical replication: `postgres.url()` for psycopg, `postgres.execute(sql)` without."""
    yield from _started("Postgres", start_postgres)


@pytest.fixture(scope="session")
def connect(kafka: Kafka) -> Iterator[Connect]:
    """Kafka Connect with Debezium: `connect.capture(postgres, name, tables)`."""
    yield from _started("Kafka Connect", lambda: start_connect(kafka))


def _started(name: str, start: Callable[[], S]) -> Iterator[S]:
    try:
        service = start()
    except ServiceError as error:
        pytest.skip(f"{name} could not be started: {error}")
    with service:
        yield service


def python_of(tool: str) -> Path:
    """The Python of a tool's own environment (`scripts/environments`), or a skip that says why there is none."""
    try:
        return environment(tool)
    except EnvironmentUnavailable as error:
        pytest.skip(f"the environment of {tool} could not be made: {error}")
