"""Where a database is, and how it is spoken of: addresses are shown without what may be secret in them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from icefield.engine.session.jars import POSTGRES
from icefield.errors import NoDatabase, NoDriver

if TYPE_CHECKING:
    from icefield.engine.session.jars import Jar

#: Databases that are asked without Spark, and all others.
Kind = Literal["postgres", "sqlite", "other"]
_DRIVERS = {"postgres": "org.postgresql.Driver", "sqlite": "org.sqlite.JDBC"}
_SECRETS = re.compile(r"(?i)(pass(?:word|wd)?|pwd|secret|token|key)=[^&;\s]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A section `[profile.NAME.jdbc.CONNECTION]`; the url may have a password in it, so neither is ever shown."""

    name: str
    profile: str
    root: Path
    url: str = field(repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    #: The class of the driver; "" where Java finds it by the url.
    driver: str = ""
    jars: tuple[Path, ...] = ()

    @property
    def kind(self) -> Kind:
        """Which database it is, as far as that makes a difference."""
        if self.url.startswith("jdbc:postgresql:"):
            return "postgres"
        return "sqlite" if self.url.startswith("jdbc:sqlite:") else "other"

    @property
    def section(self) -> str:
        """Where it is set."""
        return f"[profile.{self.profile}.jdbc.{self.name}]"

    @property
    def address(self) -> str:
        """The url for people: without user, password and options."""
        if self.kind == "sqlite":
            return str(self.file)
        shown = re.sub(r"//[^/@]*@", "//", self.url.removeprefix("jdbc:"))
        return re.split(r"[?;]", shown, maxsplit=1)[0]

    @property
    def where(self) -> str:
        """The place of a problem."""
        return f"{self.address}, set in {self.section}"

    @property
    def file(self) -> Path:
        """The file of a SQLite database; relative to the project."""
        path = self.url.removeprefix("jdbc:sqlite:").split("?", 1)[0].removeprefix("file:")
        return Path(os.path.normpath(self.root / Path(path).expanduser()))

    @property
    def jdbc_url(self) -> str:
        """The url that Spark's reader takes."""
        if self.kind != "sqlite":
            return self.url
        options = self.url.partition("?")[2]
        return f"jdbc:sqlite:{self.file}{'?' if options else ''}{options}"

    @property
    def properties(self) -> dict[str, str]:
        """What Spark's reader is to know besides."""
        found = {"driver": self.driver or _DRIVERS.get(self.kind, ""), "user": self.user, "password": self.password}
        if self.kind == "sqlite":  # a database that is not there is not to be created
            found |= {"open_mode": "1", "busy_timeout": "30000"}
        return {key: value for key, value in found.items() if value}

    @property
    def needed(self) -> tuple[Jar | Path, ...]:
        """The jars that Java needs for it, besides those that are always there."""
        for jar in self.jars:
            if not jar.is_file():
                raise NoDriver(
                    f"the JDBC driver {jar} does not exist",
                    where=self.section,
                    remedy='put the jar of the driver there, or name another one: jar = "drivers/mysql.jar"',
                )
        return (POSTGRES,) if self.kind == "postgres" and not self.jars else self.jars

    def without_secrets(self, text: str) -> str:
        """What a driver said, without password and url."""
        for secret, instead in ((self.password, "***"), (self.url, self.address)):
            if secret:
                text = text.replace(secret, instead)
        return _SECRETS.sub(r"\1=***", text)


def named(connections: tuple[Connection, ...], name: str, profile: str, table: str) -> Connection:
    """The connection of a source."""
    found = next((one for one in connections if one.name == name), None)
    if found is None:
        section = f"[profile.{profile}.jdbc.{name}]"
        raise NoDatabase(
            f"the profile has no database `{name}`, from which {table} is read",
            where=f"icefield.toml, {section}",
            remedy=f'write {section} url = "jdbc:postgresql://host:5432/database", user = "...", '
            'password = "${env:...}"',
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """A JDBC url of Postgres, as libpq takes it."""

    hosts: str
    ports: str
    database: str
    options: dict[str, str]


def postgres_address(url: str) -> PostgresAddress:
    """The parts of `jdbc:postgresql://host:port,host:port/database?options`."""
    rest = url.removeprefix("jdbc:")
    if not rest.startswith("postgresql://"):  # jdbc:postgresql:database
        name, _, query = rest.removeprefix("postgresql:").lstrip("/").partition("?")
        return PostgresAddress(hosts="localhost", ports="5432", database=unquote(name), options=_options(query))
    parts = urlsplit(rest)
    places = [place.rpartition(":") if _has_port(place) else (place, "", "5432") for place in parts.netloc.split(",")]
    return PostgresAddress(
        hosts=",".join(host.strip("[]") or "localhost" for host, _, _ in places),
        ports=",".join(port for _, _, port in places),
        database=unquote(parts.path.removeprefix("/")),
        options=_options(parts.query),
    )


def _has_port(place: str) -> bool:
    return re.search(r":\d+$", place) is not None


def _options(query: str) -> dict[str, str]:
    return dict(parse_qsl(query))
