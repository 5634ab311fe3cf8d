"""Batches as partitions: months and days as Dagster's own, anything else as dynamic ones."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, TypeAlias

import dagster as dg

from icefield.errors import InvalidConfig, OrchestrationError
from icefield.project.config import FILE
from icefield.run.batch import landed_batches

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from icefield.adapters.dagster.settings import PartitionKind, Settings
    from icefield.project import Project

    Partitions: TypeAlias = "dg.PartitionsDefinition[str]"

_FORMS: Mapping[str, str] = {"monthly": "%Y-%m", "daily": "%Y-%m-%d"}
_MONTH = re.compile(r"\d{4}-\d{2}")


def partitions_of(project: Project, settings: Settings) -> dict[str, Partitions]:
    """The partitions of every table that is taken in by batches; tables of one kind have the same ones.

    Without a setting, the files that have landed tell what a batch is, and where the first one begins.
    """
    landed = landed_batches(project)
    if not landed:
        return {}
    kinds = {table: settings.partitions or _kind_of(values) for table, values in landed.items()}
    made = {}
    for kind in set(kinds.values()):
        values = [value for table, found in landed.items() if kinds[table] == kind for value in found]
        made[kind] = _make(kind, project.name, values, settings.partitions_from)
    return {table: made[kind] for table, kind in kinds.items()}


def require_one(job: str, tables: Collection[str], partitions: Mapping[str, Partitions]) -> Partitions | None:
    """The partitions of a job's tables; Dagster gives a job one kind at most."""
    found = {table: partitions[table] for table in sorted(tables) if table in partitions}
    if len(set(found.values())) > 1:
        listed = "; ".join(f"{table}: {_told(one)}" for table, one in found.items())
        raise OrchestrationError(
            f"the job {job} has tables with different partitions: {listed}",
            where=FILE,
            remedy="make a job for each kind: [dagster.jobs.NAME] with select = ...",
        )
    return next(iter(found.values()), None)


def _kind_of(values: Collection[str]) -> PartitionKind:
    if all(_parses(value, "monthly") for value in values):  # also where nothing has landed yet
        return "monthly"
    return "daily" if all(_parses(value, "daily") for value in values) else "dynamic"


def _make(kind: PartitionKind, project: str, values: Collection[str], first: str) -> Partitions:
    if kind == "dynamic":
        return dg.DynamicPartitionsDefinition(name=f"{project}_batches")
    if first and not _parses(first, kind):
        raise InvalidConfig(
            f"[dagster] partitions_from = {first!r} does not fit partitions = {kind!r}",
            where=FILE,
            remedy='write "2023-01" for months, "2023-01-31" for days',
        )
    known = [value for value in values if _parses(value, kind)]
    start = first or min(known, default=dt.datetime.now(dt.UTC).strftime(_FORMS[kind]))
    make = dg.MonthlyPartitionsDefinition if kind == "monthly" else dg.DailyPartitionsDefinition
    return make(start_date=start, fmt=_FORMS[kind], end_offset=1)  # files may come before their month is over


def _parses(value: str, kind: PartitionKind) -> bool:
    try:
        dt.datetime.strptime(value, _FORMS[kind])
    except ValueError:
        return False
    return kind == "daily" or _MONTH.fullmatch(value) is not None


def _told(one: Partitions) -> str:
    return type(one).__name__.removesuffix("PartitionsDefinition").lower()
