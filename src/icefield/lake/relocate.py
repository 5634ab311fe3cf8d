"""Mends a lake whose folder was moved: every path in its metadata, manifests and delete files is written anew.

Iceberg names files by their full path, in three layers: metadata.json, manifest lists and manifests (Avro), and delete
files (Parquet). New files are written beside the old ones under the same names with a suffix, and all tables are
switched by one transaction at the end, so a relocation that is interrupted has changed nothing.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.lake import metadata as meta
from icefield.lake.catalog import LAKE

if TYPE_CHECKING:
    from icefield.lake.embedded import EmbeddedLake
    from icefield.lake.metadata import Metadata

_POSITION_DELETES = 1


@dataclass(slots=True)
class Relocation:
    """One move of a lake, from the folder its files name to the folder it is in."""

    lake: EmbeddedLake
    old: str
    new: str
    suffix: str = field(default_factory=lambda: secrets.token_hex(4))
    _done: dict[str, str] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)

    def carry_out(self) -> int:
        """Rewrites every table's metadata and switches all pointers at once; returns how many tables there are."""
        pointers = self.lake.pointers()
        moved = {table: self._metadata(location) for table, location in pointers.items()}
        self.lake.catalog.relocate(LAKE, moved, location=self.new)
        return len(moved)

    def _metadata(self, location: str) -> str:
        here = self._path(location)
        content: Metadata = json.loads(Path(here).read_bytes())
        content["location"] = self._path(content["location"])
        for snapshot in content.get("snapshots", []):
            snapshot["manifest-list"] = self._manifest_list(snapshot["manifest-list"])
        content["metadata-log"] = []  # older metadata files still name the old folder
        for statistics in (*content.get("statistics", []), *content.get("partition-statistics", [])):
            statistics["statistics-path"] = self._path(statistics["statistics-path"])
        target = Path(here).with_name(f"{Path(here).name.removesuffix('.metadata.json')}-{self.suffix}.metadata.json")
        target.write_text(json.dumps(content, separators=(",", ":")))
        return str(target)

    def _manifest_list(self, location: str) -> str:
        return self._avro(location, self._manifest_entry)

    def _manifest_entry(self, record: dict[str, Any]) -> dict[str, Any]:
        record["manifest_path"] = self._avro(record["manifest_path"], self._file_entry)
        record["manifest_length"] = self._sizes[record["manifest_path"]]
        return record

    def _file_entry(self, record: dict[str, Any]) -> dict[str, Any]:
        file = record["data_file"]
        if file.get("content") == _POSITION_DELETES and record["status"] != 2:
            file["file_path"] = self._position_deletes(file["file_path"])
            file["file_size_in_bytes"] = Path(file["file_path"]).stat().st_size
        else:
            file["file_path"] = self._path(file["file_path"])
        if file.get("referenced_data_file"):
            file["referenced_data_file"] = self._path(file["referenced_data_file"])
        return record

    def _avro(self, location: str, change: Any) -> str:
        """An Avro file with its records changed, under a new name; each file is done once."""
        import fastavro  # noqa: PLC0415 - only here

        if location in self._done:
            return self._done[location]
        here = Path(self._path(location))
        target = here.with_name(f"{here.stem}-{self.suffix}{here.suffix}")
        with here.open("rb") as source:
            reader = fastavro.reader(source)
            kept = {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
            schema = json.loads(reader.metadata["avro.schema"])
            records = [change(record) for record in reader]
        with target.open("wb") as out:
            fastavro.writer(out, schema, records, codec="deflate", metadata=kept)
        self._done[location] = str(target)
        self._sizes[str(target)] = target.stat().st_size
        return str(target)

    def _position_deletes(self, location: str) -> str:
        """A delete file with the paths inside it changed."""
        import pyarrow as pa
        from pyarrow import compute, parquet

        if location in self._done:
            return self._done[location]
        here = Path(self._path(location))
        rows = parquet.read_table(here)
        spelled = pa.array([self._path(path) for path in rows["file_path"].to_pylist()], pa.string())
        place = rows.schema.get_field_index("file_path")
        target = here.with_name(f"{here.stem}-{self.suffix}{here.suffix}")
        rows = rows.set_column(place, rows.schema.field(place), compute.cast(spelled, rows.schema.field(place).type))
        parquet.write_table(rows, target)
        self._done[location] = str(target)
        return str(target)

    def _path(self, location: str) -> str:
        """The same file under the new folder; paths outside of the lake stay as they are."""
        plain = str(meta.local_path(location))
        if plain == self.old or plain.startswith(self.old + "/"):
            return self.new + plain.removeprefix(self.old)
        return location


def relocate(lake: EmbeddedLake) -> int:
    """Rewrites the paths of a lake that was moved; returns the number of tables, 0 if it is where it was made."""
    made_at = lake.catalog.setting("location")
    if made_at in (None, str(lake.root)):
        return 0
    for branch in lake.catalog.branches():  # branches of runs that never came back name the old folder
        lake.catalog.drop_branch(branch)
    return Relocation(lake, str(made_at), str(lake.root)).carry_out()
