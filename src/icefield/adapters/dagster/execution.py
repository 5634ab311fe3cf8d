"""What a Dagster run does: whatever it selects is one transaction of icefield, or one for each partition.

Nothing is reported before it is published. A run that fails reports the results of its checks and then fails; nothing
of it is materialized, because nothing of it was published.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from icefield.adapters.dagster.checks import Evaluation, recorded, worst
from icefield.adapters.dagster.reporting import Report
from icefield.errors import (
    CheckError,
    CommandError,
    DeclarationError,
    IcefieldError,
    OrchestrationError,
    ProjectError,
    UnknownBatch,
)
from icefield.lake.embedded import EmbeddedLake
from icefield.lake.turns import turn
from icefield.project import open_project
from icefield.query import open_reader
from icefield.run.batches import run_batch
from icefield.run.checking import check_project
from icefield.run.events import PhaseStarted, RunBeside, RunOvertaken, TableOutcome, TableStarted
from icefield.run.planning import plan_project
from icefield.run.request import RunRequest
from icefield.run.runner import run_project
from icefield.words import plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from icefield.adapters.dagster.assets import Keys
    from icefield.adapters.dagster.checks import Checks, Evaluations
    from icefield.project import Project
    from icefield.run.events import Event, RunResult

    Yielded: TypeAlias = "dg.MaterializeResult[Any] | dg.AssetCheckResult"
    #: A partition whose transaction is done, with what is told of each table.
    _Published: TypeAlias = tuple[str, dict[str, dict[str, Any]]]

#: Errors that the same run would meet again.
_FINAL = (DeclarationError, ProjectError, CheckError, CommandError, UnknownBatch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables of a project, as the function of one multi-asset."""

    root: Path
    profile: str | None
    tables: dict[dg.AssetKey, str]
    partitioned: frozenset[str]
    keys: Keys
    checks: Checks
    preview: int

    def run(self, context: dg.AssetExecutionContext) -> Iterator[Yielded]:
        """Carries out one step of a Dagster run."""
        try:
            asked = self._asked(context)
        except IcefieldError as error:
            raise _failure(error) from None
        known: Evaluations = {}
        try:
            asked.open(self.root, self.profile)
            if asked.tables:
                yield from self._refresh(asked, known)
            yield from self._check_alone(asked)
        except _Failed as failed:
            why = f"run {failed.result.run} stopped before"
            yield from self._results(asked, list(asked.checks), known, why)
            raise _failed(failed.result) from None
        except IcefieldError as error:
            yield from self._results(asked, list(asked.checks), known, error.what)
            raise _failure(error) from None

    def _asked(self, context: dg.AssetExecutionContext) -> _Asked:
        """What is selected; refused where it cannot be one transaction, or one a partition."""
        chosen = [name for key, name in self.tables.items() if key in context.selected_asset_keys]
        _refuse_a_part(context, self.tables, chosen)
        batches = _batches(context, [name for name in chosen if name in self.partitioned])
        return _Asked(
            context=context,
            tables=chosen,
            checks=self.checks.wanted(context.selected_asset_check_keys),
            batches=batches,
            full_refresh=bool(context.op_execution_context.op_config["full_refresh"]),
        )

    # -- tables

    def _refresh(self, asked: _Asked, known: Evaluations) -> Iterator[Yielded]:
        lake = EmbeddedLake(asked.project.profile.lake)
        done: list[_Published] = []
        try:
            with turn(lake, lambda: asked.context.log.info("Waiting for another run that works on this lake.")):
                _refuse_waiting(asked.project, asked.tables, lake)
                for batch in asked.batches or [""]:
                    result = asked.run(batch)
                    worst(known, result.checks, result.run)
                    if not result.ok:
                        raise _Failed(result)
                    if len(asked.batches) > 1:  # told before the next one changes the lake
                        done.append((batch, self._metadata(asked, result, lake)))
        except (IcefieldError, _Failed):
            self._log_published(asked, done)
            raise
        self._add_by_partition(asked, done)
        yield from self._materialized(asked, known, result, lake)

    def _materialized(
        self, asked: _Asked, known: Evaluations, result: RunResult, lake: EmbeddedLake
    ) -> Iterator[Yielded]:
        """Every selected table, those that were up to date as well: Dagster asks for all of them."""
        with Report(lake, result, self.preview) as report:
            settled = {**recorded(report.reader), **known}
            for name in asked.tables:
                by_partition = len(asked.batches) > 1 and name in self.partitioned
                yield dg.MaterializeResult(
                    asset_key=self.keys.table(name),
                    metadata={} if by_partition else report.metadata(name),
                    data_version=report.data_version(name),
                    check_results=list(self._results(asked, [name], settled, "no run has evaluated it yet")),
                )

    def _metadata(self, asked: _Asked, result: RunResult, lake: EmbeddedLake) -> dict[str, dict[str, Any]]:
        with Report(lake, result, self.preview) as report:
            return {name: report.metadata(name) for name in asked.tables}

    def _add_by_partition(self, asked: _Asked, done: Sequence[_Published]) -> None:
        """Of several partitions in one run, what each of their transactions did."""
        for batch, told in done:
            for name in asked.tables:
                if name in self.partitioned:
                    asked.context.add_asset_metadata(told[name], self.keys.table(name), batch)

    def _log_published(self, asked: _Asked, done: Sequence[_Published]) -> None:
        """Of several partitions in one run, those that were published before one failed: they stay."""
        for batch, told in done:
            for name in asked.tables:
                event = dg.AssetMaterialization(
                    asset_key=self.keys.table(name),
                    metadata=told[name],
                    partition=batch if name in self.partitioned else None,
                )
                asked.context.log_event(event)

    # -- checks

    def _check_alone(self, asked: _Asked) -> Iterator[Yielded]:
        """Checks that were selected without their tables: over the rows that are published."""
        alone = [name for name in asked.project.graph.order if name in asked.checks and name not in asked.tables]
        if not alone:
            return
        told = asked.context.log.info
        found: Evaluations = {}
        for result in check_project(asked.project, alone, lambda table: told(f"Checking {table}")):
            found[(result.table, result.check)] = Evaluation.of(result, "")
        with open_reader(EmbeddedLake(asked.project.profile.lake)) as reader:
            known = {**recorded(reader), **found}
        yield from self._results(asked, alone, known, "no run has evaluated it yet")

    def _results(
        self, asked: _Asked, tables: Iterable[str], known: Evaluations, otherwise: str
    ) -> Iterator[dg.AssetCheckResult]:
        """The results of the selected checks of some tables, each once."""
        for name in tables:
            for key in asked.checks.pop(name, ()):
                yield self.checks.result(key, known, otherwise)


class _Failed(Exception):
    """A run that began and did not publish."""

    def __init__(self, result: RunResult) -> None:
        super().__init__(result.error)
        self.result = result


@dataclass(slots=True, kw_only=True)
class _Asked:
    """What a step is asked for, and how it tells what happens."""

    context: dg.AssetExecutionContext
    tables: list[str]
    #: By table; those that have their result are taken out.
    checks: dict[str, list[dg.AssetCheckKey]]
    batches: list[str]
    full_refresh: bool
    project: Project = field(init=False)

    def open(self, root: Path, profile: str | None) -> None:
        """Loads the project as it is now; refuses tables that it has no longer."""
        self.project = open_project(root, profile)
        if gone := sorted({name for name in (*self.tables, *self.checks) if name not in self.project.graph}):
            raise OrchestrationError(
                f"{', '.join(gone)}: no longer declared",
                where=str(root),
                remedy="reload the code location in Dagster; nothing was run",
            )

    def run(self, batch: str) -> RunResult:
        """One transaction."""
        order = RunRequest(select=" ".join(self.tables), full_refresh=self.full_refresh, once=True)
        if batch:
            return run_batch(self.project, order, batch, self._tell)
        return run_project(self.project, order, self._tell)

    def _tell(self, event: Event) -> None:
        if told := _told(event):
            self.context.log.info(told)


def _told(event: Event) -> str:
    match event:
        case PhaseStarted(phase="stage", plan=plan) if plan is not None:
            return f"{plural(len(plan.work), 'table')} to refresh"
        case PhaseStarted(phase="fetch"):
            return "Fetching jars"
        case TableStarted():
            return f"{event.table}: {event.action} ({event.reason})"
        case TableOutcome():
            moved = f"{event.rows_added:,} rows added, {event.rows_removed:,} removed, {event.rows_total:,} in total"
            return f"{event.table}: {event.error or moved}, {seconds(event.seconds)}"
        case RunOvertaken():
            return f"Another run published {', '.join(event.tables)} first; starting again from there"
        case RunBeside():
            return f"Run {event.run} (process {event.pid}) is at work on the same lake"
        case _:
            return ""


def _batches(context: dg.AssetExecutionContext, partitioned: Sequence[str]) -> list[str]:
    """The partitions to take in, ascending; none where no selected table has any."""
    if not partitioned:
        return []
    if not (context.has_partition_key or context.has_partition_key_range):
        raise OrchestrationError(
            f"{', '.join(partitioned)}: partitioned, and the run has no partition",
            where=f"the Dagster run {context.run.run_id}",
            remedy="choose one partition or several, or leave these tables out",
        )
    return sorted(context.partition_keys)


def _refuse_a_part(context: dg.AssetExecutionContext, tables: dict[dg.AssetKey, str], chosen: Sequence[str]) -> None:
    """Dagster splits a step in two where another asset lies in between; that would be two transactions."""
    layer = context.op_execution_context.job_def.asset_layer
    together = {tables[key] for key in layer.executable_asset_keys if key in tables}
    if chosen and together != set(chosen):
        raise OrchestrationError(
            f"Dagster has split this run: {', '.join(sorted(together - set(chosen)))} would be published apart from"
            f" {', '.join(chosen)}, because another asset lies in between",
            where=f"the Dagster run {context.run.run_id}",
            remedy="select one side alone, or declare the asset in between as a table",
        )


def _refuse_waiting(project: Project, tables: Sequence[str], lake: EmbeddedLake) -> None:
    """A table without its inputs would not be built, and must not be reported."""
    states = lake.states()
    plan = plan_project(project, lake, states, selection=tuple(tables), wishes=RunRequest().wishes, at_a_glance=True)
    plan.require_possible()
    waiting = [
        f"{step.table}: {step.reason}" for step in plan.steps if step.action == "none" and step.table not in states
    ]
    if waiting:
        raise OrchestrationError(
            "; ".join(waiting), where=str(project.root), remedy="select the inputs as well; nothing was run"
        )


def _failed(result: RunResult) -> dg.Failure:
    metadata: dict[str, Any] = {"run_id": result.run, "log": dg.MetadataValue.path(result.log)}
    stopped = any(check.stops for check in result.checks)
    return dg.Failure(description=result.error, metadata=metadata, allow_retries=not stopped)


def _failure(error: IcefieldError) -> dg.Failure:
    return dg.Failure(
        description=str(error), metadata={"code": error.code}, allow_retries=not isinstance(error, _FINAL)
    )
