"""dbt's tests: the four generic ones as checks of a table, all others as tables of the rows that fail them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

#: A check as the function that declares it, with its arguments.
Check = dict[str, Any]

_NAME = re.compile(r"[A-Za-z_]\w*")
#: Settings by which a test is more than "no row fails".
_USUAL = {"where": None, "limit": None, "fail_calc": "count(*)", "warn_if": "!= 0", "error_if": "!= 0"}
_ARGUMENTS = {
    "not_null": {"column_name", "model"},
    "unique": {"column_name", "model"},
    "accepted_values": {"column_name", "model", "values", "quote"},
    "relationships": {"column_name", "model", "to", "field"},
}


def owner_of(test: Mapping[str, Any]) -> str:
    """The node that a generic test is attached to; a singular test has none."""
    return str(test.get("attached_node") or "")


def as_check(test: Mapping[str, Any]) -> Check | None:
    """One of the four generic tests as a check; None where it has to be evaluated as a query.

    As in dbt, NULL passes unique, accepted_values and relationships. The table that `references` names is dbt's id.
    """
    told, config = test.get("test_metadata") or {}, test["config"]
    name, given = told.get("name"), told.get("kwargs") or {}
    if told.get("namespace") not in (None, "dbt") or name not in _ARGUMENTS or not set(given) <= _ARGUMENTS[name]:
        return None
    if any(config.get(key, usual) != usual for key, usual in _USUAL.items()):
        return None
    column = str(given.get("column_name", ""))
    if not _NAME.fullmatch(column):
        return None  # an expression
    found = _checked(name, column, given, test)
    return None if found is None else {**found, "otherwise": outcome(config)}


def _checked(name: str, column: str, given: Mapping[str, Any], test: Mapping[str, Any]) -> Check | None:
    if name == "accepted_values":
        values = given.get("values")
        if not isinstance(values, list) or not values:
            return None
        shown = ", ".join(str(value) for value in values)
        listed = ", ".join(_literal(value, quote=bool(given.get("quote", True))) for value in values)
        return {"expect": [f"{column} is one of {shown}", f"`{column}` IN ({listed})"]}
    if name == "relationships":
        others = [node for node in test["depends_on"]["nodes"] if node != owner_of(test)]
        if len(others) != 1 or given.get("field") != column:
            return None
        return {"references": [column, others[0]]}
    return {name: [column]}


def outcome(config: Mapping[str, Any]) -> str:
    """What happens where a test fails: severity `warn` warns, `error` fails the run."""
    return "warn" if str(config.get("severity", "")).lower() == "warn" else "fail"


def thresholds(test: Mapping[str, Any]) -> tuple[Check, ...]:
    """The checks of a table that holds the rows which fail a test: what dbt computes of them is in bounds."""
    config = test["config"]
    failures = config.get("fail_calc") or "count(*)"
    warn, error = config.get("warn_if") or "!= 0", config.get("error_if") or "!= 0"
    if outcome(config) == "warn":
        return (_within(str(test["name"]), failures, warn, "warn"),)
    found = [_within(str(test["name"]), failures, error, "fail")]
    if warn != error:
        found.append(_within(f"{test['name']} (warn_if)", failures, warn, "warn"))
    return tuple(found)


def _within(name: str, failures: str, condition: str, otherwise: str) -> Check:
    return {"expect_table": [name, f"coalesce(NOT ({failures} {condition}), true)"], "otherwise": otherwise}


def _literal(value: object, *, quote: bool) -> str:
    if not quote:
        return str(value)
    escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
