"""Makes views of tables for checks: all rows, and what changed since the published version."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from icefield.engine.checks.aggregates import Amounts
from icefield.engine.checks.rejects import quarantine_schema
from icefield.engine.checks.view import Moves, TableView
from icefield.engine.frames import empty_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from icefield.engine.refresh.staged import Staged
    from icefield.engine.tables import Tables
    from icefield.graph.state import TableState


def view_of(tables: Tables, now: TableState, before: TableState | None, staged: Staged | None) -> TableView:
    """All rows of a table; `before`: as it is published, `staged`: what this run did to it, if anything."""
    whole = cache(lambda: tables.read(now.name, now.version.snapshot))
    moves = None if before is None or before.meddled else _moves(tables, whole, now, before, staged)
    amounts = Amounts(whole)
    if before is not None and moves is not None and moves.appended:
        amounts = Amounts(whole, before.amounts, lambda: moves.came.frame)
    return TableView(
        whole,
        now.rows,
        tables.columns_at(now.name, now.version.snapshot),
        amounts,
        now.version,
        moves,
        tables.missing_at(now.name, now.version.snapshot),
        known=tables.schema(now.name),
        failing=None if staged is None or moves is not None else staged.failing,
    )


def empty_view(tables: Tables, owner: TableState) -> TableView:
    """The quarantine of a table of which no row was ever rejected."""
    rows = tables.read(owner.name, owner.version.snapshot)
    return TableView(empty_frame(tables.spark, quarantine_schema(rows.schema)), 0)


def _moves(
    tables: Tables, whole: Callable[[], DataFrame], now: TableState, before: TableState, staged: Staged | None
) -> Moves | None:
    start, end = before.version.snapshot, now.version.snapshot
    if start is None or end is None:
        return None
    if start == end:
        return Moves(before.version, TableView(lambda: whole().limit(0), 0), appended=True)
    if staged is not None and staged.step.action == "append":
        count = now.rows - before.rows
        read = tables.columns_between(now.name, start, end, count)
        came = cache(lambda: tables.read_between(now.name, start, end))
        seen = TableView(came, count, read, known=tables.schema(now.name), failing=staged.failing)
        return Moves(before.version, seen, appended=True)
    return None if staged is None else staged.moves
