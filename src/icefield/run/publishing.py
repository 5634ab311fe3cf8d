"""Publishes what a run staged by one commit, with its record in `ops.*`; or records why it failed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from icefield.lake import metadata as meta
from icefield.lake.branch import Branch, new_branch_name
from icefield.lake.duckdb_scan import contents
from icefield.lake.embedded import RECORDER, new_run_id
from icefield.lake.table_state import state_properties, version_properties
from icefield.run import journal

if TYPE_CHECKING:
    from collections.abc import Collection

    from icefield.engine.refresh.staged import Staged
    from icefield.lake.embedded import EmbeddedLake
    from icefield.lake.ops import Journal
    from icefield.run.replaying import Replaying
    from icefield.run.state import RunState


def publish(state: RunState, branch: Branch, replaying: Replaying, relied: Collection[str]) -> int | None:
    """Publishes the staged tables; gives the time of the commit, None where nothing was staged.

    `relied`: tables that checks read and that must not have changed meanwhile.
    """
    if not state.staged:
        return None
    context = state.context
    tables = {
        table: _properties(staged, table, context.run) for staged in state.staged.values() for table in staged.tables
    }
    record = journal.of_run(
        run=context.run,
        project=context.project.name,
        selection=context.order.select,
        started_ms=context.started_ms,
        staged=state.staged,
        outcomes=state.outcomes,
        checks=state.results,
        repairs=replaying.records(state.staged),
        repaired=replaying.rows(state.staged, partial(contents, context.lake)),
        batch=context.batch,
        label=context.order.label,
    )
    origin = {meta.RUN: branch.run, **({meta.BATCH: context.batch} if context.batch else {})}
    summaries = {
        name: {meta.ROWS_ADDED: str(one.rows_added), meta.ROWS_REMOVED: str(one.rows_removed), **origin}
        for name, one in state.staged.items()
        if one.changed
    }
    return branch.publish(tables, record, relied=relied, summaries=summaries)


def _properties(staged: Staged, table: str, run: str) -> dict[str, str]:
    if table == staged.state.name:
        return state_properties(staged.state)
    if staged.waiting is not None and table == staged.waiting.name:
        return version_properties(staged.waiting)
    return {meta.RUN: run}


def record_failure(state: RunState, error: str) -> None:
    """Records a run that published nothing."""
    context = state.context
    rows = journal.of_failure(
        run=context.run,
        project=context.project.name,
        selection=context.order.select,
        started_ms=context.started_ms,
        outcomes=state.outcomes,
        checks=state.results,
        error=error,
        batch=context.batch,
        label=context.order.label,
    )
    record(context.lake, rows)


def record(lake: EmbeddedLake, rows: Journal, deaths: Collection[str] = ()) -> None:
    """Adds rows to `ops.*` by a commit of its own."""
    branch = Branch(lake, new_branch_name(RECORDER), new_run_id())
    try:
        branch.publish({}, rows, deaths)
    except BaseException:
        branch.abandon()
        raise
