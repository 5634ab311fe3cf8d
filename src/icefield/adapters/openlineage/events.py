"""Turns what a run tells into OpenLineage's events: one START for each run and table, and one end."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal

import icefield
from icefield.adapters.openlineage.datasets import Datasets
from icefield.adapters.openlineage.facets import EVENT_SCHEMA, PRODUCER, facet
from icefield.adapters.openlineage.quality import assertions
from icefield.adapters.openlineage.sending import Sender
from icefield.adapters.wording import raised, why_failed
from icefield.errors import Interrupted
from icefield.lake.embedded import EmbeddedLake
from icefield.run.events import RunDied, RunEnded, RunOvertaken, RunRaised, RunStarted, TableStarted
from icefield.run.subscribers import Undelivered

if TYPE_CHECKING:
    import datetime as dt

    from icefield.adapters.openlineage.facets import Json
    from icefield.engine.checks.results import CheckResult
    from icefield.project import Project
    from icefield.run.events import Event, RunResult, TableOutcome

    State = Literal["START", "COMPLETE", "ABORT", "FAIL"]

#: The run that started this process, as other integrations of OpenLineage name it: NAMESPACE/JOB/RUN.
PARENT_VARIABLE = "OPENLINEAGE_PARENT_ID"
_UNPUBLISHED = "nothing of the run was published"


@dataclass(slots=True, kw_only=True)
class _Current:
    """The run that is going on, and the tables that were started in it."""

    run: str
    batch: str = ""
    tables: dict[str, str] = field(default_factory=dict)


class Emitter:
    """Hears of the runs of one project."""

    name = "OpenLineage"
    column_lineage = True

    def __init__(self, project: Project) -> None:
        settings = project.profile.openlineage
        assert settings is not None
        self.seconds = settings.timeout_seconds
        self._project, self._namespace = project, settings.namespace
        self._lake = EmbeddedLake(project.profile.lake)
        self._datasets, self._sender = Datasets(project), Sender(settings)
        self._current: _Current | None = None
        self._problems: list[str] = []

    def hear(self, event: Event, at: dt.datetime) -> None:
        """Sends what OpenLineage is to know of it."""
        self._problems = []
        self._hear(event, at)
        if self._problems:
            raise Undelivered("; ".join(dict.fromkeys(self._problems)))

    def _hear(self, event: Event, at: dt.datetime) -> None:
        match event:
            case RunDied():
                run = _Current(run=event.run)
                self._send("FAIL", at, self._whole(run, "its process ended without reporting an error"))
            case RunStarted():
                self._current = _Current(run=event.run, batch=event.batch)
                self._send("START", at, self._whole(self._current))
            case TableStarted() if self._current is not None and event.action != "none":
                self._current.tables[event.table] = event.action
                inputs = self._datasets.inputs(self._project.graph[event.table])
                outputs = [self._datasets.table(event.table)]
                self._send("START", at, self._table(self._current, event.table), inputs, outputs)
            case RunOvertaken():
                self._end(at, "ABORT", f"another run published {', '.join(event.tables)} first; it is planned again")
            case RunRaised():
                stopped = isinstance(event.error, Interrupted | KeyboardInterrupt)
                self._end(at, "ABORT" if stopped else "FAIL", raised(event.error))
            case RunEnded():
                self._ended(event.result, at)

    # -- ends

    def _end(self, at: dt.datetime, state: State, why: str) -> None:
        """Ends a run that has no result."""
        current, self._current = self._current, None
        if current is not None and self._lake.published(current.run):  # it was stopped too late
            for about in (*(self._table(current, table) for table in current.tables), self._whole(current)):
                self._send("COMPLETE", at, about)
        elif current is not None:
            for table in current.tables:
                self._send("ABORT", at, self._table(current, table, _UNPUBLISHED))
            self._send(state, at, self._whole(current, why))
        self._sender.close()

    def _ended(self, result: RunResult, at: dt.datetime) -> None:
        current, self._current = self._current, None
        if current is not None:
            outcomes = {outcome.table: outcome for outcome in result.tables}
            for table in current.tables:
                self._end_table(current, table, outcomes.get(table), result, at)
            for table in dict.fromkeys(check.table for check in result.checks):
                self._checks(current, table, outcomes.get(table), result, at)
            failed = result.status == "failed"
            why = why_failed(result.error, result.checks) if failed else ""
            self._send("FAIL" if failed else "COMPLETE", at, self._whole(current, why))
        self._sender.close()

    def _end_table(
        self, current: _Current, table: str, outcome: TableOutcome | None, result: RunResult, at: dt.datetime
    ) -> None:
        node = self._project.graph[table]
        if outcome is not None and outcome.status in ("published", "unchanged"):
            versions = outcome.state.inputs if outcome.state is not None else {}
            inputs, outputs = self._datasets.inputs(node, versions), self._datasets.outputs(node, outcome)
            self._send("COMPLETE", at, self._table(current, table), inputs, outputs)
        elif outcome is not None and outcome.status == "failed":
            own = [check for check in result.checks if check.table == table]
            told = self._table(current, table, why_failed(outcome.error, own))
            self._send("FAIL", at, told, self._datasets.inputs(node))
        else:
            why = outcome.reason if outcome is not None and outcome.status == "skipped" else _UNPUBLISHED
            self._send("ABORT", at, self._table(current, table, why), self._datasets.inputs(node))

    def _checks(
        self, current: _Current, table: str, outcome: TableOutcome | None, result: RunResult, at: dt.datetime
    ) -> None:
        """A table's checks are a run of their own that reads it: assertions are facets of inputs."""
        results: list[CheckResult] = [one for one in result.checks if one.table == table and one.status != "deferred"]
        if not results:
            return
        state = outcome.state if outcome is not None and outcome.status == "published" else None
        snapshot = state.version.snapshot if state is not None else None
        node = self._project.graph[table]
        read = {**self._datasets.table(table, snapshot), "inputFacets": assertions(node, results)}
        bad = any(one.stops for one in results)
        told = self._checked(current, table, why_failed("", results) if bad else "")
        self._send("START", at, self._checked(current, table), [self._datasets.table(table, snapshot)])
        self._send("FAIL" if bad else "COMPLETE", at, told, [read])

    # -- what an event is about

    def _whole(self, current: _Current, why: str = "") -> Json:
        """The transaction."""
        parent = _outer_parent()
        facets = {**self._facets(current, why), **(facet("parent", **parent, root=parent) if parent else {})}
        job = self._job(self._project.name, "RUN")
        return {"run": {"runId": str(self._run_id(current.run)), "facets": facets}, "job": job}

    def _table(self, current: _Current, table: str, why: str = "") -> Json:
        action = current.tables.get(table, "")
        return self._child(current, table, "TABLE", self._facets(current, why, action=action))

    def _checked(self, current: _Current, table: str, why: str = "") -> Json:
        return self._child(current, f"{table}.checks", "CHECKS", self._facets(current, why))

    def _child(self, current: _Current, name: str, kind: str, facets: Json) -> Json:
        own = self._run_id(current.run)
        job = {"namespace": self._namespace, "name": self._project.name}
        parent = {"run": {"runId": str(own)}, "job": job}
        facets |= facet("parent", **parent, root=_outer_parent() or parent)
        node = self._project.graph.nodes.get(name)
        told = facet("documentation", description=node.comment) if node is not None and node.comment else {}
        return {
            "run": {"runId": str(uuid.uuid5(own, name)), "facets": facets},
            "job": self._job(f"{self._project.name}.{name}", kind, told),
        }

    def _run_id(self, run: str) -> uuid.UUID:
        """The same for everyone who speaks of a run: its end may be told by another process than its start."""
        return uuid.uuid5(uuid.NAMESPACE_URL, f"urn:icefield:{self._project.profile.lake}:{run}")

    def _job(self, name: str, kind: str, facets: Json | None = None) -> Json:
        told = facet("jobType", processingType="BATCH", integration="ICEFIELD", jobType=kind)
        return {"namespace": self._namespace, "name": name, "facets": {**told, **(facets or {})}}

    def _facets(self, current: _Current, why: str, **more: str) -> Json:
        tags = {"run": current.run, "profile": self._project.profile.name, "batch": current.batch, **more}
        told = [{"key": key, "value": value, "source": "ICEFIELD"} for key, value in tags.items() if value]
        error = facet("errorMessage", message=why, programmingLanguage="PYTHON") if why else {}
        return {**_engine(), **facet("tags", tags=told), **error}

    def _send(
        self,
        state: State,
        at: dt.datetime,
        about: Json,
        inputs: list[Json] | None = None,
        outputs: list[Json] | None = None,
    ) -> None:
        event = {
            "eventType": state,
            "eventTime": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            **about,
            "inputs": inputs or [],
            "outputs": outputs or [],
            "producer": PRODUCER,
            "schemaURL": EVENT_SCHEMA,
        }
        try:
            self._sender.send(event)
        except Undelivered as problem:  # the others may still get through
            self._problems.append(str(problem))


def _outer_parent() -> Json | None:
    """The run of an orchestrator that this one is a part of."""
    job, _, run = os.environ.get(PARENT_VARIABLE, "").rpartition("/")
    namespace, _, name = job.rpartition("/")
    try:
        return {"run": {"runId": str(uuid.UUID(run))}, "job": {"namespace": namespace, "name": name}}
    except ValueError:
        return None


@cache
def _engine() -> Json:
    from importlib.metadata import version  # noqa: PLC0415 - where there is something to send

    told = {"name": "Spark", "version": version("pyspark"), "openlineageAdapterVersion": icefield.__version__}
    return facet("processing_engine", **told)
