"""What Dagster records of a table once a run has published it, or found it up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from icefield.adapters.dagster.assets import column_schema, columns_at
from icefield.errors import IcefieldError
from icefield.query import open_reader
from icefield.query.overview import overview
from icefield.query.reader import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from icefield.lake.embedded import EmbeddedLake
    from icefield.query import Pin, Reader
    from icefield.run.events import RunResult, TableOutcome

#: A cell of a preview is cut there.
_WIDEST = 60


class Report:
    """The lake as a run left it, for as long as it is asked about."""

    def __init__(self, lake: EmbeddedLake, result: RunResult, preview: int) -> None:
        self.reader: Reader = open_reader(lake, as_of=result.run if result.status == "published" else None)
        self._outcomes: Mapping[str, TableOutcome] = {outcome.table: outcome for outcome in result.tables}
        self._preview = preview

    def __enter__(self) -> Report:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.close()

    def data_version(self, table: str) -> dg.DataVersion:
        """The snapshot: an unchanged table keeps it, so that nothing downstream is out of date for Dagster."""
        return dg.DataVersion(str(self.reader.pins[table].snapshot))

    def metadata(self, table: str) -> dict[str, Any]:
        """Rows, what the run did to them, the snapshot, the columns, some rows."""
        pin = self.reader.pins[table]
        seen, outcome = overview(pin), self._outcomes.get(table)
        told: dict[str, Any] = {
            "dagster/row_count": seen["rows"],
            "dagster/column_schema": column_schema(columns_at(pin)),
            "run_id": seen["run"],
            "snapshot_id": str(seen["snapshot"]),  # too large for a number in a browser
        }
        if outcome is None:
            told["action"] = "none"
        else:
            told |= {
                "action": outcome.action,
                "why": outcome.reason,
                "rows_added": outcome.rows_added,
                "rows_removed": outcome.rows_removed,
                "rows_quarantined": outcome.rows_quarantined,
                "rows_dropped": outcome.rows_dropped,
                "seconds": round(outcome.seconds, 3),
            }
        if self._preview and seen["rows"]:
            told["preview"] = self._some_rows(pin)
        return told

    def _some_rows(self, pin: Pin) -> dg.MetadataValue[Any]:
        try:
            found = self.reader.query(f"SELECT * FROM {quoted(pin.table)} LIMIT {self._preview}")
        except IcefieldError as error:  # the table is published, whatever DuckDB makes of it
            return dg.MetadataValue.text(f"no preview: {error.what}")
        return dg.MetadataValue.md(markdown(found.columns, found.rows()))


def markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as a table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(_cell(value) for value in line)} |" for line in lines)


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    text = text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
