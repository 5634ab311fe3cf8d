"""How many rows may fail: a number of rows, or a share of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from icefield.declare.registry import caller
from icefield.errors import InvalidOption

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """At most so many rows, or at most that share of the rows that were looked at."""

    rows: int | None = None
    percent: float | None = None

    def __str__(self) -> str:
        if self.percent is not None:
            return f"{self.percent:g}%"
        return f"{self.rows:,} row" + ("" if self.rows == 1 else "s")

    def allows(self, failed: int, total: int) -> bool:
        """Whether that many of so many rows may fail."""
        if self.percent is not None:
            return failed * 100 <= self.percent * total
        return failed <= (self.rows or 0)


def limit_of(option: str, value: object) -> Limit | None:
    """What an author wrote: `100` is a number of rows, `"5%"` a share; None: no limit was given."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Limit(rows=value)
    found = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is not None and float(found[1]) <= 100:
        return Limit(percent=float(found[1]))
    raise InvalidOption(
        f"{option}={value!r} is neither a number of rows nor a percentage",
        where=str(caller()),
        remedy=f'write {option}=100 or {option}="5%"',
    )
