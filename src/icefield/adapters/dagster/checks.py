"""Checks as asset checks, blocking where they fail a run; and a result for every one that Dagster asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from icefield.adapters.dagster.names import check_names
from icefield.lake.values import plain
from icefield.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from icefield.adapters.dagster.assets import Keys
    from icefield.engine.checks.results import CheckResult
    from icefield.graph import Graph
    from icefield.query import Reader

_OUTCOMES = {
    "fail": "if it fails, nothing is published",
    "warn": "if it fails, this is reported",
    "quarantine": "rows that fail it are sent to quarantine",
    "drop": "rows that fail it are dropped",
}
#: From the least to the most that is wrong: of several results of one check the worst is told.
_WORSE = ("passed", "deferred", "dropped", "quarantined", "warned", "error", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What is known of one check: by this run, or by an earlier one that is still right."""

    status: str
    failed_rows: int = 0
    detail: str = ""
    run: str = ""
    examples: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def of(cls, result: CheckResult, run: str) -> Evaluation:
        """What a run has found."""
        return cls(
            status=result.status,
            failed_rows=result.failed_rows,
            detail=result.detail,
            run=run,
            examples=result.examples,
        )


#: By table and icefield's name of the check.
Evaluations = dict[tuple[str, str], Evaluation]


class Checks:
    """All checks of a project under the names that Dagster takes."""

    def __init__(self, graph: Graph, keys: Keys) -> None:
        self._keys = keys
        self._specs: list[dg.AssetCheckSpec] = []
        self._named: dict[dg.AssetCheckKey, tuple[str, str]] = {}
        for table, names in check_names(graph).items():
            for check, name in names.items():
                spec = self._spec(table, check, name, graph[table].outcomes[check])
                self._specs.append(spec)
                self._named[spec.key] = (table, check)

    @property
    def specs(self) -> list[dg.AssetCheckSpec]:
        """A spec for each check."""
        return self._specs

    def wanted(self, selected: Iterable[dg.AssetCheckKey]) -> dict[str, list[dg.AssetCheckKey]]:
        """The selected checks by table."""
        found: dict[str, list[dg.AssetCheckKey]] = {}
        for key in sorted(selected, key=str):
            found.setdefault(self._named[key][0], []).append(key)
        return found

    def result(self, key: dg.AssetCheckKey, known: Evaluations, otherwise: str) -> dg.AssetCheckResult:
        """A check's result; one of which nothing is known could not be evaluated, and that is no pass."""
        table, check = self._named[key]
        found = known.get((table, check)) or Evaluation(status="not evaluated", detail=otherwise)
        stops = found.status in ("failed", "error")
        metadata: dict[str, Any] = {"check": check, "status": found.status}
        if found.failed_rows:
            metadata["failed_rows"] = found.failed_rows
        if found.run:
            metadata["run_id"] = found.run
        if found.examples:
            rows = [{name: plain(value) for name, value in row.items()} for row in found.examples]
            metadata["rows"] = dg.MetadataValue.json(rows)
        return dg.AssetCheckResult(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=found.status == "passed",
            severity=dg.AssetCheckSeverity.ERROR if stops else dg.AssetCheckSeverity.WARN,
            description=_told(check, found),
            metadata=metadata,
        )

    def _spec(self, table: str, check: str, name: str, otherwise: str) -> dg.AssetCheckSpec:
        return dg.AssetCheckSpec(
            name,
            asset=self._keys.table(table),
            description=f"{check}; {_OUTCOMES[otherwise]}",
            blocking=otherwise == "fail",
            metadata={"check": check, "otherwise": otherwise},
        )


def worst(known: Evaluations, results: Iterable[CheckResult], run: str) -> None:
    """Adds what a run has found to what the runs before it have."""
    for result in results:
        place, new = (result.table, result.check), Evaluation.of(result, run)
        before = known.get(place)
        if before is None or _WORSE.index(new.status) >= _WORSE.index(before.status):
            known[place] = new


def recorded(reader: Reader) -> Evaluations:
    """What the last published run that evaluated each check has found: nothing has changed for it since."""
    if "ops.checks" not in reader.pins:
        return {}
    rows = reader.query(
        'SELECT c."table", c."check", arg_max(c.status, r.finished_at), arg_max(c.failed_rows, r.finished_at),'
        " arg_max(coalesce(c.detail, ''), r.finished_at), arg_max(c.run, r.finished_at)"
        " FROM ops.checks AS c JOIN ops.runs AS r ON r.run = c.run WHERE r.status = 'published' GROUP BY 1, 2"
    ).rows()
    return {
        (table, check): Evaluation(status=status, failed_rows=failed, detail=detail, run=run)
        for table, check, status, failed, detail, run in rows
    }


def _told(check: str, found: Evaluation) -> str:
    rows = plural(found.failed_rows, "row") if found.failed_rows else ""
    told = "; ".join(filter(None, [rows, found.detail]))
    return f"{check}: {found.status}{f', {told}' if told else ''}"
