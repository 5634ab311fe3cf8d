"""What comes of a check: a plain value, for processes without pyspark as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What came of one check."""

    table: str
    check: str
    kind: str
    otherwise: str
    status: str
    failed_rows: int = 0
    detail: str = ""
    seconds: float = 0.0
    #: Some of the rows for which it did not hold, where that stops the run.
    examples: tuple[Mapping[str, Any], ...] = ()

    @property
    def stops(self) -> bool:
        """Whether this result forbids publishing the table."""
        return self.status in ("failed", "error")
