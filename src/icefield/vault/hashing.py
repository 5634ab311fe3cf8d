"""Hash keys and hashdiffs, as Spark SQL text: equal in declarations and in functions, so that a plan can tell."""

from __future__ import annotations

from icefield.declare.registry import caller
from icefield.errors import InvalidVault

#: The key of what is not known: of a business key that is NULL in all its parts, and of ghost rows.
UNKNOWN = "0" * 32
_NULL, _BETWEEN = "^^", "||"


def hash_key(*columns: str) -> str:
    """The hash key of a business key: MD5 over UPPER(TRIM(CAST)) of its parts; `UNKNOWN` where all of them are NULL."""
    _require(columns, "hash_key")
    parts = [f"upper(trim(CAST({_quoted(column)} AS STRING)))" for column in columns]
    return f"CASE WHEN {is_known(*columns)} THEN {_digest(parts)} ELSE '{UNKNOWN}' END"


def hashdiff(*columns: str) -> str:
    """The digest of a payload, by which changes are found: columns in the order of their names, values as they are.

    Upper and lower case and blanks at the ends count: a corrected spelling is a change.
    """
    _require(columns, "hashdiff")
    return _digest([f"CAST({_quoted(column)} AS STRING)" for column in sorted(columns)])


def is_known(*columns: str) -> str:
    """SQL that tells whether any part of a business key is there."""
    return f"(coalesce({', '.join(f'CAST({_quoted(column)} AS STRING)' for column in columns)}) IS NOT NULL)"


def _digest(parts: list[str]) -> str:
    told = ", ".join(f"coalesce({_escaped(part)}, '{_NULL}')" for part in parts)
    return f"md5(concat_ws('{_BETWEEN}', {told}))"


def _escaped(part: str) -> str:
    r"""What separates parts and stands for NULL gets a `\` in front of it: different keys have different texts."""
    return rf"regexp_replace({part}, '([\\\\|^])', '\\\\$1')"


def _quoted(column: str) -> str:
    return f"`{column}`"


def _require(columns: tuple[str, ...], function: str) -> None:
    if not columns or any(not isinstance(column, str) or not column or "`" in column for column in columns):
        raise InvalidVault(
            f"{function}{columns!r} does not name columns",
            where=str(caller()),
            remedy=f'write {function}("order_id", "line_no")',
        )
