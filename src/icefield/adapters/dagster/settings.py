"""What `[dagster]` in icefield.toml says: jobs with their selections, schedules and sensors; partitions; previews."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from icefield.declare.suggest import did_you_mean
from icefield.errors import InvalidConfig
from icefield.plan.due import CauseKind
from icefield.project.config import FILE
from icefield.words import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

PartitionKind = Literal["monthly", "daily", "dynamic"]
PER_TABLE: Final = "per table"
#: What a sensor looks for unless it is told; changed code is for people, or for the next run that is due.
DATA: tuple[CauseKind, ...] = ("files", "offsets", "rows", "upstream")
PREVIEW_ROWS = 5
_NAME = re.compile(r"[A-Za-z0-9_]+")
_KEYS = ("jobs", "partitions", "partitions_from", "preview")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job over some tables: with a schedule (cron), a sensor, both or neither.

    Job(name="gold", select="gold.*", schedule="0 */6 * * *", timezone="Europe/Berlin")
    Job(name="news", sensor=("files", "offsets"), every=10, running=True)

    A schedule and a sensor start a run only if something is due. They are turned on in Dagster, or by `running`.
    """

    name: str
    select: str = ""
    exclude: str = ""
    schedule: str = ""
    timezone: str = "UTC"
    #: What the sensor looks for; () for no sensor.
    sensor: tuple[CauseKind, ...] = DATA
    #: At least so many seconds lie between two looks.
    every: float = 30.0
    running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of it."""

    #: None: one job over all tables.
    jobs: tuple[Job, ...] | Literal["per table"] | None = None
    #: How batches become partitions; None: as the files that have landed tell.
    partitions: PartitionKind | None = None
    #: The first month or day; "": that of the first file.
    partitions_from: str = ""
    #: How many rows of a table are shown with each materialization.
    preview: int = PREVIEW_ROWS


def read_settings(section: Mapping[str, Any]) -> Settings:
    """The settings of a section; anything that is not known there is an error."""
    _only(section, _KEYS, "[dagster]")
    found: dict[str, Any] = {}
    if "jobs" in section:
        found["jobs"] = _jobs(section["jobs"])
    if "partitions" in section:
        found["partitions"] = _one_of(section["partitions"], get_args(PartitionKind), "[dagster] partitions")
    if "partitions_from" in section:
        found["partitions_from"] = _text(section["partitions_from"], "[dagster] partitions_from")
    if "preview" in section:
        found["preview"] = _number(section["preview"], "[dagster] preview")
    return Settings(**found)


def _jobs(given: object) -> tuple[Job, ...] | Literal["per table"]:
    if given == PER_TABLE:
        return PER_TABLE
    if not isinstance(given, dict):
        raise _wrong(f"[dagster] jobs = {given!r} is not valid", 'write jobs = "per table", or [dagster.jobs.NAME]')
    return tuple(_job(name, content) for name, content in given.items())


def _job(name: str, content: object) -> Job:
    place = f"[dagster.jobs.{name}]"
    if not isinstance(content, dict):
        raise _wrong(f"{place} is not a section", f"write {place} and its keys below it")
    if not _NAME.fullmatch(name):
        raise _wrong(f"{place}: Dagster takes letters, digits and underscores alone", "give the job another name")
    _only(content, tuple(field.name for field in fields(Job) if field.name != "name"), place)
    found: dict[str, Any] = {
        key: _text(value, f"{place} {key}")
        for key, value in content.items()
        if key in ("select", "exclude", "schedule", "timezone")
    }
    if "sensor" in content:
        found["sensor"] = _kinds(content["sensor"], f"{place} sensor")
    if "every" in content:
        found["every"] = _duration(content["every"], f"{place} every")
    if "running" in content:
        found["running"] = _flag(content["running"], f"{place} running")
    return Job(name=name, **found)


def _kinds(given: object, place: str) -> tuple[CauseKind, ...]:
    if isinstance(given, bool):
        return DATA if given else ()
    listed = given if isinstance(given, list) else [given]
    return tuple(_one_of(kind, get_args(CauseKind), place) for kind in listed)


def _one_of(given: object, known: tuple[str, ...], place: str) -> Any:
    if given not in known:
        raise _wrong(f"{place} = {given!r} is not one of {', '.join(known)}", did_you_mean(str(given), known))
    return given


def _text(given: object, place: str) -> str:
    if not isinstance(given, str):
        raise _wrong(f"{place} = {given!r} is not a string", "put it in quotes")
    return given


def _flag(given: object, place: str) -> bool:
    if not isinstance(given, bool):
        raise _wrong(f"{place} = {given!r} is neither true nor false", "write true or false")
    return given


def _number(given: object, place: str) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise _wrong(f"{place} = {given!r} is not a number of rows", "write 0 for none, or a whole number")
    return given


def _duration(given: object, place: str) -> float:
    try:
        return parse_duration(str(given))
    except ValueError:
        raise _wrong(f"{place} = {given!r} is not a duration", 'write "90s", "30m", "12h" or "7d"') from None


def _only(content: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in content:
        if key not in known:
            raise _wrong(f"{place} has an unknown key `{key}`", did_you_mean(key, known, all_of_them="keys"))


def _wrong(what: str, remedy: str) -> InvalidConfig:
    return InvalidConfig(what, where=FILE, remedy=remedy)
