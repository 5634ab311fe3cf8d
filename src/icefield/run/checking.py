"""Evaluates checks over the published lake; reads tables and changes none."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from icefield.engine.checks.results import CheckResult
from icefield.errors import NoLake
from icefield.graph import owner_of
from icefield.interrupt import tidying
from icefield.lake.catalog import LAKE
from icefield.lake.embedded import EmbeddedLake, now_ms
from icefield.project.cache import folder
from icefield.project.config import require_reachable_lake
from icefield.run.relations import drivers
from icefield.run.schedule import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from icefield.declare import Check
    from icefield.graph import Node
    from icefield.graph.state import TableState
    from icefield.project import Project

LOG = "check.log"
AnyCheck = TypeVar("AnyCheck", bound="Check")


def check_project(
    project: Project, selection: Sequence[str], listener: Callable[[str], None] = lambda table: None
) -> list[CheckResult]:
    """The results of every check of the selected tables, each counted over all published rows."""
    with tidying("Nothing was changed."):  # what Spark keeps in temporary files is removed as the process exits
        return Later(lambda: _check(project, selection, listener)).result()


def _check(project: Project, selection: Sequence[str], listener: Callable[[str], None]) -> list[CheckResult]:
    from icefield.engine.checks.rejects import quarantine_schema  # noqa: PLC0415 - pyspark, for those who check
    from icefield.engine.checks.view import TableView  # noqa: PLC0415
    from icefield.engine.frames import empty_frame  # noqa: PLC0415
    from icefield.engine.sql import quoted  # noqa: PLC0415

    lake = EmbeddedLake(project.profile.lake)
    if not lake.exists:
        raise NoLake(lake.root)
    require_reachable_lake(project.profile)
    lake.require_in_place()
    states = lake.states()
    spark = _session(project, lake)

    def read(table: str) -> Any:
        if (state := states.get(table)) is None:
            return None if owner_of(table) == table or owner_of(table) not in states else nothing_waits(table)
        name = ".".join(quoted(part) for part in (LAKE, *table.split(".")))
        if state.version.snapshot is None:
            return TableView(spark.table(name).limit(0))
        return TableView(spark.read.option("versionAsOf", str(state.version.snapshot)).table(name))

    def nothing_waits(table: str) -> Any:
        rows = read(owner_of(table)).frame
        return TableView(empty_frame(spark, quarantine_schema(rows.schema)), 0)

    results: list[CheckResult] = []
    with tempfile.TemporaryDirectory(prefix="icefield-check-") as scratch:
        for table in selection:
            listener(table)
            results += _results(project.graph[table], states, read, Path(scratch, table))
    return results


def _session(project: Project, lake: EmbeddedLake) -> Any:
    """The lake's own session of Spark, with a catalog that reads what is published."""
    from icefield.engine.session.spark import add_catalog, start_session  # noqa: PLC0415 - pyspark

    spark = start_session(
        app=f"icefield {project.name}",
        conf=project.profile.spark,
        log=log_of(project),
        drivers=drivers(project),
        scope=str(lake.root),
    )
    add_catalog(spark, LAKE, uri=str(lake.catalog.path), warehouse=str(lake.warehouse))
    return spark


def log_of(project: Project) -> Path:
    """Beside the project, or elsewhere where that is only to be read."""
    try:
        log = folder(project.root) / LOG
        log.touch()
    except OSError:
        return Path(tempfile.gettempdir(), f"icefield-{os.getpid()}-{LOG}")
    return log


def _results(
    node: Node, states: Mapping[str, TableState], read: Callable[[str], Any], scratch: Path
) -> list[CheckResult]:
    from icefield.engine.checks.audit import cross_checks, cross_result, own_results  # noqa: PLC0415 - pyspark

    checks = (*node.row_checks, *node.table_checks)
    if not checks:
        return []
    outcomes = {check.name: str(check.otherwise) for check in checks}
    strict = replace(
        node,
        row_checks=tuple(_counted(check) for check in node.row_checks),
        table_checks=tuple(_counted(check) for check in node.table_checks),
    )
    whole = read(node.name)
    own = [] if whole is None else own_results(strict, whole, whole, now_ms(), scratch)
    found = [*own, *(cross_result(strict, number, read, scratch) for number in range(len(cross_checks(strict))))]
    told = {result.check for result in found}
    missing = [_deferred(node, check) for check in checks if node.name not in states and check.name not in told]
    return [*(replace(result, otherwise=outcomes[result.check]) for result in found), *missing]


def _counted(check: AnyCheck) -> AnyCheck:
    """Rows that a check sets aside are no longer in the table; one that is there after all has to be counted."""
    return check if check.otherwise in ("warn", "fail") else replace(check, otherwise="fail")


def _deferred(node: Node, check: Check) -> CheckResult:
    told = f"{node.name} is not built yet"
    return CheckResult(
        table=node.name, check=check.name, kind="", otherwise=str(check.otherwise), status="deferred", detail=told
    )
