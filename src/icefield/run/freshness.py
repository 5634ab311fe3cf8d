"""`fresh_within` in a run with nothing new, which is when data gets old: from metadata, without Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from icefield.declare import FreshWithin
from icefield.engine.checks.results import freshness, result_of
from icefield.errors import CheckFailed
from icefield.lake import metadata as meta
from icefield.lake.newest import can_be_read, newest_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from icefield.engine.checks.results import CheckResult
    from icefield.plan import Plan
    from icefield.run.state import RunContext


def freshness_results(context: RunContext, plan: Plan, pointers: Mapping[str, str]) -> list[CheckResult]:
    """Evaluates `fresh_within` of the planned tables that are built.

    Columns of other types than dates and timestamps, and session time zones that only Java knows, are left to the runs
    that refresh a table.
    """
    found = []
    zone = context.project.profile.spark.get("spark.sql.session.timeZone", "UTC")
    for step in plan.steps:
        node = context.project.graph[step.table]
        checks = [check for check in node.table_checks if isinstance(check, FreshWithin)]
        location = pointers.get(node.name) if checks else None
        if location is None:
            continue
        metadata = meta.load(location, node.name)
        for check in checks:
            if can_be_read(metadata, check.column, zone):
                begun = time.monotonic()
                judged = freshness(check, newest_ms(location, check.column, zone), context.started_ms)
                found.append(result_of(node, check, judged, time.monotonic() - begun))
    return found


def stale(context: RunContext, failed: Sequence[CheckResult]) -> CheckFailed:
    """The error for tables that are not fresh."""
    told = [f"{result.table}: check `{result.check}` failed, {result.detail}" for result in failed]
    return CheckFailed(
        f"nothing new arrived, and {'; '.join(told)}",
        where=context.location(failed[0].table),
        remedy='find out why nothing arrives, or raise the limit of fresh_within; otherwise="warn" only reports it',
    )
