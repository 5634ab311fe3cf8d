"""What comes of verifying a table: a plain value, for processes without pyspark as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of verifying one table; `status`: exact, differs, or not compared with the reason in `detail`."""

    table: str
    status: str
    rows: int = 0
    too_many: int = 0
    missing: int = 0
    detail: str = ""
    examples: tuple[tuple[str, dict[str, Any]], ...] = ()
