"""Jobs, and what starts them: schedules and sensors, which look for what is due without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg

from icefield.adapters.dagster.names import word
from icefield.adapters.dagster.partitions import require_one
from icefield.adapters.dagster.settings import PER_TABLE, Job
from icefield.project import open_project
from icefield.run.batch import landed_batches
from icefield.run.planning import look_for_due, selected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from icefield.adapters.dagster.assets import Keys
    from icefield.adapters.dagster.partitions import Partitions
    from icefield.adapters.dagster.settings import Settings
    from icefield.plan import Due
    from icefield.project import Project

#: Of a tag's value.
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Automation:
    """Everything that starts runs."""

    jobs: list[dg.UnresolvedAssetJobDefinition]
    schedules: list[dg.ScheduleDefinition]
    sensors: list[dg.SensorDefinition]


def automation(
    project: Project, profile: str | None, settings: Settings, keys: Keys, partitions: Mapping[str, Partitions]
) -> Automation:
    """The jobs that the settings name, or one over all tables."""
    made = Automation([], [], [])
    for job in _jobs(project, settings):
        tables = selected(project, job.select, job.exclude)
        starter = _Starter(
            root=project.root,
            profile=profile,
            job=job,
            tables=tables,
            keys=keys,
            partitioned=frozenset(name for name in tables if name in partitions),
            partitions=require_one(job.name, tables, partitions),
        )
        definition = dg.define_asset_job(
            job.name, selection=dg.AssetSelection.assets(*map(keys.table, tables)), description=_described(job)
        )
        made.jobs.append(definition)
        if job.schedule:
            made.schedules.append(starter.schedule(definition))
        if job.sensor:
            made.sensors.append(starter.sensor(definition))
    return made


def _jobs(project: Project, settings: Settings) -> Sequence[Job]:
    if settings.jobs is None:
        return [Job(name=word(project.name) or "icefield")]
    if settings.jobs == PER_TABLE:
        return [Job(name=name.replace(".", "__"), select=name) for name in project.graph.order]
    return settings.jobs


def _described(job: Job) -> str:
    excluded = f" without {job.exclude}" if job.exclude else ""
    return f"{job.select or 'all tables'}{excluded}, as one transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Starter:
    """Looks for what is due among the tables of one job, and asks for the runs that it takes."""

    root: Path
    profile: str | None
    job: Job
    tables: tuple[str, ...]
    keys: Keys
    partitioned: frozenset[str]
    partitions: Partitions | None

    def schedule(self, job: dg.UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
        """Starts what is due at each of its times."""

        def look(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
            return self._start(self._due(), context.instance)

        running = dg.DefaultScheduleStatus.RUNNING if self.job.running else dg.DefaultScheduleStatus.STOPPED
        return dg.ScheduleDefinition(
            name=f"{self.job.name}_schedule",
            job=job,
            cron_schedule=self.job.schedule,
            execution_timezone=self.job.timezone,
            execution_fn=look,
            default_status=running,
            description="Starts a run if something is due.",
        )

    def sensor(self, job: dg.UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
        """Starts a run once for whatever waits."""

        def look(context: dg.SensorEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
            return self._start(self._due().of_kinds(self.job.sensor), context.instance)

        running = dg.DefaultSensorStatus.RUNNING if self.job.running else dg.DefaultSensorStatus.STOPPED
        return dg.SensorDefinition(
            name=f"{self.job.name}_sensor",
            job=job,
            evaluation_fn=look,
            minimum_interval_seconds=max(1, round(self.job.every)),
            default_status=running,
            description=f"Starts a run once for whatever is new: {', '.join(self.job.sensor)}.",
        )

    def _due(self) -> Due:
        project = open_project(self.root, self.profile)
        return look_for_due(project, selected(project, " ".join(self.tables)))

    def _start(self, found: Due, instance: dg.DagsterInstance) -> list[dg.RunRequest] | dg.SkipReason:
        """A run for each batch that waits, or one for whatever else does; the same news have the same key.

        What belongs to no batch goes along with the first of them.
        """
        batches = {value: due for value, due in found.batches.items() if value}
        known = {value: due for value, due in batches.items() if self._has_partition(value, instance)}
        requests = [self._request(due, partition=value) for value, due in known.items()]
        if not requests and (rest := found.batches.get("")):
            requests = [self._request_rest(rest)]
        if requests:
            return requests
        outside = [value for value in batches if value not in known]
        return dg.SkipReason(
            f"files of {', '.join(outside)}, which is no partition of this job" if outside else str(found)
        )

    def _request(self, due: Due, partition: str | None, tables: Sequence[str] | None = None) -> dg.RunRequest:
        return dg.RunRequest(
            run_key=f"{partition or self.job.name} {due.digest}",
            partition_key=partition,
            asset_selection=None if tables is None else [self.keys.table(name) for name in tables],
            tags={"icefield/due": str(due)[:_LONGEST]},
        )

    def _request_rest(self, due: Due) -> dg.RunRequest:
        """A run without a batch: without the tables that have some, unless it is they who wait."""
        if not self.partitioned:
            return self._request(due, None)
        if any(cause.table in self.partitioned for cause in due.causes):
            landed = landed_batches(open_project(self.root, self.profile))
            return self._request(due, max(value for name in self.partitioned for value in landed[name]))
        return self._request(due, None, [name for name in self.tables if name not in self.partitioned])

    def _has_partition(self, value: str, instance: dg.DagsterInstance) -> bool:
        """Whether a run can be asked for; a dynamic partition is made known where it is not yet."""
        if isinstance(self.partitions, dg.DynamicPartitionsDefinition):
            instance.add_dynamic_partitions(str(self.partitions.name), [value])
            return True
        return self.partitions is not None and self.partitions.has_partition_key(value)
