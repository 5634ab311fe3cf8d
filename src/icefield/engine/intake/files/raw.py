"""The bytes of rows that were read from files, at the place where they stand; by the driver or by Spark's tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from icefield.engine.intake.files.landing import changed, unreadable
from icefield.engine.intake.files.parquet import rows_as_json
from icefield.engine.intake.files.splits import fetch_lines
from icefield.engine.origin import IDENTITY


@dataclass(frozen=True, slots=True)
class RawRows:
    """Reads rows of some files again; `files` has the path and the format of each, by its arrival."""

    root: str
    encoding: str
    files: Mapping[int, tuple[str, str]]

    def __call__(self, wanted: pa.Table) -> pa.Array:
        """The bytes of rows, by their identities; NULL where a row has none."""
        places: dict[int, set[int]] = {}
        origins = list(zip(*(wanted[name].to_pylist() for name in IDENTITY), strict=True))
        for arrival, row in origins:
            if arrival in self.files and row is not None:
                places.setdefault(arrival, set()).add(row)
        found = {arrival: self._fetch(*self.files[arrival], sorted(rows)) for arrival, rows in places.items()}
        return pa.array([found.get(arrival, {}).get(row) for arrival, row in origins], pa.binary())

    def _fetch(self, relative: str, kind: str, places: list[int]) -> dict[int, bytes]:
        path = f"{self.root}/{relative}"
        if kind == "binary":
            return {}
        try:
            found = rows_as_json(path, places) if kind == "parquet" else fetch_lines(path, places, self.encoding)
        except (OSError, EOFError, UnicodeError, pa.ArrowException) as error:
            raise unreadable(path, error) from error
        if found is None:
            raise changed(relative)
        return dict(zip(places, found, strict=True))
