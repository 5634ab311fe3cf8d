"""Is every file there that the published tables name? Looked up layer by layer, from metadata down to rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icefield.errors import LakeDamaged
from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DELETED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A file that a table needs, and what is wrong with it."""

    table: str
    file: str
    told: str


@dataclass(slots=True)
class Wholeness:
    """The files of the current snapshots: how many were looked at, and what is wrong with some."""

    files: int = 0
    damages: list[Damage] = field(default_factory=list)

    def look_at(self, table: str, location: str) -> None:
        """One table: its metadata, manifest list, manifests, data files and delete files. No row is read."""
        self.files += 1
        try:
            snapshot = meta.current_snapshot(meta.load(location, table))
        except LakeDamaged as error:
            self.damages.append(Damage(table=table, file=location, told=error.what))
            return
        if snapshot is None:
            return
        for manifest in self._records(table, snapshot["manifest-list"]):
            for entry in self._records(table, manifest["manifest_path"]):
                if entry["status"] != _DELETED:
                    self._look_at_file(table, entry["data_file"])

    def _records(self, table: str, location: str) -> Iterator[dict[str, Any]]:
        """What a manifest or a list of them holds; nothing where it cannot be read."""
        import fastavro  # noqa: PLC0415 - only where a person asks

        self.files += 1
        try:
            with meta.local_path(location).open("rb") as file:
                for record in fastavro.reader(file):
                    assert isinstance(record, dict)
                    yield record
        except OSError as error:
            self.damages.append(Damage(table=table, file=location, told=error.strerror or str(error)))
        except (ValueError, EOFError, KeyError) as error:
            self.damages.append(Damage(table=table, file=location, told=f"it is not an Avro file: {error}"))

    def _look_at_file(self, table: str, file: dict[str, Any]) -> None:
        self.files += 1
        location, wanted = file["file_path"], file["file_size_in_bytes"]
        try:
            found = meta.local_path(location).stat().st_size
        except OSError as error:
            self.damages.append(Damage(table=table, file=location, told=error.strerror or str(error)))
            return
        if found != wanted:
            told = f"it has {found:,} bytes instead of {wanted:,}"
            self.damages.append(Damage(table=table, file=location, told=told))


def wholeness(pointers: Mapping[str, str]) -> Wholeness:
    """Looks at every file that the current snapshots of these tables are made of."""
    found = Wholeness()
    for table, location in sorted(pointers.items()):
        found.look_at(table, location)
    return found
