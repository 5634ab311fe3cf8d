"""Results of checks as OpenLineage's assertions, without the values that failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from icefield.adapters.openlineage.facets import facet
from icefield.adapters.wording import COUNTING
from icefield.declare import ExpectTable, RowCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icefield.adapters.openlineage.facets import Json
    from icefield.declare import Check
    from icefield.engine.checks.results import CheckResult
    from icefield.graph import Node

#: Kinds of checks in the words that tools share.
_KINDS = {
    "row": "expression",
    "unique": "unique",
    "references": "relationships",
    "table": "custom_sql",
    "fresh": "freshness",
    "reconciles": "reconciliation",
    "rejected": "rejected_rows",
}


def assertions(node: Node, results: Sequence[CheckResult]) -> Json:
    """What came of a table's checks."""
    declared = {check.name: check for check in (*node.row_checks, *node.table_checks)}
    return facet("dataQualityAssertions", assertions=[_assertion(one, declared.get(one.check)) for one in results])


def _assertion(result: CheckResult, check: Check | None) -> Json:
    told: Json = {
        "assertion": _kind(result, check),
        "success": result.status == "passed",
        "severity": "error" if result.otherwise == "fail" else "warn",
        "name": result.check,
        "params": {"otherwise": result.otherwise, "status": result.status},
    }
    if check is not None and len(check.named_columns) == 1:
        told["column"] = check.named_columns[0]
    if isinstance(check, RowCheck | ExpectTable):
        content = check.predicate if isinstance(check, RowCheck) else check.aggregate
        told |= {"content": content, "contentType": "sql"}
    if result.kind in COUNTING:
        limit = f"at most {check.at_most}" if check is not None and check.at_most is not None else "0"
        told |= {"expected": limit, "actual": str(result.failed_rows)}
    return told


def _kind(result: CheckResult, check: Check | None) -> str:
    if isinstance(check, RowCheck) and check.name == f"{', '.join(check.columns)} is not null":
        return "not_null"
    return _KINDS.get(result.kind, result.kind)
