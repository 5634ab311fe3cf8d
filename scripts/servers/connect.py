"""Kafka Connect, standalone, with Debezium's connector for Postgres: changes of tables become messages of topics."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from icefield.engine.session.jars import Jar
from servers.downloads import locked_jars, unpacked_archive
from servers.jvm import java_command
from servers.kafka import LARGEST_MESSAGE, LOCK, Kafka
from servers.postgres import Postgres
from servers.service import HOST, Service, ServiceError, free_ports, new_folder, wait_until, write_properties

DEBEZIUM = Jar(
    group="io.debezium",
    artifact="debezium-connector-postgres",
    version="3.6.2.Final",
    sha256="3a48d716eccd460670ca9885557c6ec9eedce91d715f86714f29f9ebe75a5f71",
    classifier="plugin",
    extension="tar.gz",
)
MEGABYTES = 384
SECONDS = 60


@dataclass(kw_only=True)
class Connect(Service):
    """A Connect worker. It remembers its connectors, and continues them when it is started again."""

    name: ClassVar[str] = "connect"
    url: str

    def command(self) -> list[str]:
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        settings = [self.folder / "connect.properties", *sorted((self.folder / "connectors").glob("*.json"))]
        return [*java_command(self.folder, locked_jars(LOCK), MEGABYTES), main, *map(str, settings)]

    def answers(self) -> bool:
        """Its REST interface answers before connectors run: all that it remembers have to."""
        known = [path.stem for path in (self.folder / "connectors").glob("*.json")]
        self._request("GET", "/connectors")
        return all(self.is_running(name) for name in known)

    def describe(self) -> str:
        return self.url

    def capture(
        self, postgres: Postgres, name: str, tables: Sequence[str], *, database: str = "postgres", **settings: object
    ) -> None:
        """Starts to capture tables such as `public.orders` into topics such as `name.public.orders`.

        Returns when the snapshot is complete and changes are being followed. The tables must exist. More settings of
        the connector are added with `_` for `.`; `name` is also that of the replication slot and the publication.
        """
        chosen = {key.replace("_", "."): value for key, value in settings.items()}
        config = {key: str(value) for key, value in (_connector(postgres, name, tables, database) | chosen).items()}
        self._request("POST", "/connectors", {"name": name, "config": config})
        (self.folder / "connectors" / f"{name}.json").write_text(json.dumps({"name": name, "config": config}))
        wait_until(lambda: self.is_running(name), SECONDS, f"connector {name} to run")
        # Debezium streams from its slot only after the snapshot.
        active = f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{name}' AND active"
        wait_until(lambda: postgres.execute(active) == "1", SECONDS, f"the snapshot of connector {name}")

    def release(self, postgres: Postgres, name: str) -> None:
        """Ends a capture and drops its replication slot; its topics stay."""
        (self.folder / "connectors" / f"{name}.json").unlink()
        self._request("DELETE", f"/connectors/{name}")
        slot = f"FROM pg_replication_slots WHERE slot_name = '{name}'"
        wait_until(lambda: postgres.execute(f"SELECT count(*) {slot} AND active") == "0", SECONDS, f"slot {name}")
        postgres.execute(f"SELECT pg_drop_replication_slot(slot_name) {slot}")

    def is_running(self, name: str) -> bool:
        """Whether a connector and its task run; ServiceError if one has failed."""
        try:
            status = self._request("GET", f"/connectors/{name}/status")
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return False
            raise
        parts = [status["connector"], *status["tasks"]]
        for part in parts:
            if part["state"] == "FAILED":
                raise ServiceError(f"Connector {name} has failed: {part.get('trace', '')}")
        return len(parts) > 1 and all(part["state"] == "RUNNING" for part in parts)

    def _request(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            content = answer.read()
        return json.loads(content) if content else None


def start_connect(kafka: Kafka) -> Connect:
    """Starts a new worker without connectors beside a broker."""
    connect = Connect(folder=new_folder("connect"), url=f"http://{HOST}:{free_ports(1)[0]}")
    (connect.folder / "connectors").mkdir()
    try:
        write_properties(connect.folder / "connect.properties", _worker(connect, kafka))
        return connect.start()
    except BaseException:
        connect.close()
        raise


def _worker(connect: Connect, kafka: Kafka) -> dict[str, object]:
    converters = {
        f"{side}.converter{option}": value
        for side in ("key", "value")
        for option, value in {
            "": "org.apache.kafka.connect.json.JsonConverter",
            ".schemas.enable": "false",
            # Otherwise a NULL in a column with a default arrives as that default.
            ".replace.null.with.default": "false",
        }.items()
    }
    return {
        "bootstrap.servers": kafka.bootstrap,
        "listeners": connect.url,
        "plugin.path": unpacked_archive(DEBEZIUM),
        "plugin.discovery": "service_load",
        "offset.storage.file.filename": connect.folder / "offsets",
        "offset.flush.interval.ms": 1000,
        "producer.max.request.size": LARGEST_MESSAGE,
        **converters,
    }


def _connector(postgres: Postgres, name: str, tables: Sequence[str], database: str) -> dict[str, object]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.hostname": postgres.host,
        "database.port": postgres.port,
        "database.user": postgres.user_name,
        "database.password": postgres.password,
        "database.dbname": database,
        "topic.prefix": name,
        "table.include.list": ",".join(tables),
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "decimal.handling.mode": "string",
        "skipped.operations": "none",
        "poll.interval.ms": 50,
        "topic.creation.default.replication.factor": 1,
        "topic.creation.default.partitions": 1,
    }
