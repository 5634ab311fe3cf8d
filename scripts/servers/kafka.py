"""Kafka: one node that is broker and controller (KRaft), with a plain, a SASL and a SASL over TLS listener.

The broker is known to be gone after 2 s, so that it is back within seconds after `kill -9`.
"""

from __future__ import annotations

import base64
import os
import socket
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from servers.certificate import certificate
from servers.downloads import locked_jars
from servers.jvm import java_command
from servers.service import HOST, Service, ServiceError, free_ports, new_folder, write_properties

LOCK = "kafka.lock"
LARGEST_MESSAGE = 32 << 20
MEGABYTES = 512
USER = "icefield"
PASSWORD = "streams"
METADATA = 3  # the id of Kafka's Metadata request


@dataclass(kw_only=True)
class Kafka(Service):
    """A broker with its addresses. The secured listeners take the one user by SASL's mechanism PLAIN."""

    name: ClassVar[str] = "kafka"
    bootstrap: str
    sasl_bootstrap: str
    tls_bootstrap: str
    #: What clients of the TLS listener trust.
    ca: Path
    user_name: str = USER
    password: str = PASSWORD

    def command(self) -> list[str]:
        settings = str(self.folder / "server.properties")
        return [*java_command(self.folder, locked_jars(LOCK), MEGABYTES), "kafka.Kafka", settings]

    def answers(self) -> bool:
        """Metadata, version 0, of all topics lists the broker once it takes part. No client library is needed."""
        host, port = self.bootstrap.split(":")
        client = b"ready"
        request = struct.pack(f">hhih{len(client)}si", METADATA, 0, 1, len(client), client, 0)
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(12, socket.MSG_WAITALL)
        if len(answer) < 12:
            return False
        _, correlation, brokers = struct.unpack(">iii", answer)
        return (correlation, brokers) == (1, 1)

    def client(self, listener: Literal["plain", "sasl", "tls"] = "plain") -> dict[str, str]:
        """What a client of librdkafka needs to connect to one of the listeners."""
        if listener == "plain":
            return {"bootstrap.servers": self.bootstrap}
        login = {"sasl.mechanism": "PLAIN", "sasl.username": self.user_name, "sasl.password": self.password}
        if listener == "sasl":
            return {"bootstrap.servers": self.sasl_bootstrap, "security.protocol": "SASL_PLAINTEXT", **login}
        trust = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(self.ca)}
        return {"bootstrap.servers": self.tls_bootstrap, **trust, **login}

    def describe(self) -> str:
        secured = f"SASL {self.sasl_bootstrap}, SASL over TLS {self.tls_bootstrap}"
        return f"{self.bootstrap} ({secured}: user {self.user_name}, password {self.password}, CA {self.ca})"


def start_kafka(**settings: object) -> Kafka:
    """Starts a new broker; settings are added to its server.properties, with `_` for `.`."""
    plain, sasl, tls, controller = (f"{HOST}:{port}" for port in free_ports(4))
    kafka = Kafka(
        folder=new_folder("kafka"),
        bootstrap=plain,
        sasl_bootstrap=sasl,
        tls_bootstrap=tls,
        ca=certificate().certificate,
    )
    chosen = {key.replace("_", "."): value for key, value in settings.items()}
    settings_of_all = _settings(kafka, controller) | _listeners(kafka, controller) | chosen
    write_properties(kafka.folder / "server.properties", settings_of_all)
    try:
        _format(kafka)
        return kafka.start()
    except BaseException:
        kafka.close()
        raise


def _settings(kafka: Kafka, controller: str) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.bootstrap.servers": controller,
        "log.dirs": kafka.folder / "data",
        "auto.create.topics.enable": "false",
        "message.max.bytes": LARGEST_MESSAGE,
        "broker.session.timeout.ms": 2000,
        "broker.heartbeat.interval.ms": 500,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
    }


def _listeners(kafka: Kafka, controller: str) -> dict[str, object]:
    keys = certificate()
    addresses = {
        "PLAINTEXT": kafka.bootstrap,
        "SASL": kafka.sasl_bootstrap,
        "TLS": kafka.tls_bootstrap,
        "CONTROLLER": controller,
    }
    protocols = {"PLAINTEXT": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "TLS": "SASL_SSL", "CONTROLLER": "PLAINTEXT"}
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required "
    login += f'user_{kafka.user_name}="{kafka.password}";'
    return {
        "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": login,
        "listener.name.tls.plain.sasl.jaas.config": login,
        "listener.name.tls.ssl.keystore.type": "PKCS12",
        "listener.name.tls.ssl.keystore.location": keys.key_store,
        "listener.name.tls.ssl.keystore.password": keys.password,
        "listener.name.tls.ssl.key.password": keys.password,
    }


def _format(kafka: Kafka) -> None:
    # A leading 1 byte keeps the id from starting with "-", which would be read as an option.
    cluster = base64.urlsafe_b64encode(b"\x01" + os.urandom(15)).decode("ascii").rstrip("=")
    command = [*java_command(kafka.folder, locked_jars(LOCK), MEGABYTES), "kafka.tools.StorageTool", "format"]
    command += ["--standalone", "--cluster-id", cluster, "--config", str(kafka.folder / "server.properties")]
    done = subprocess.run(command, cwd=kafka.folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServiceError(f"Kafka's storage could not be formatted:\n{done.stdout}{done.stderr}")
