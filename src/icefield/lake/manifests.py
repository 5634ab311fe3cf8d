"""Reads manifests. DuckDB does so in threads where an error ends the whole process, so they are looked at before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from icefield.errors import LakeDamaged
from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from icefield.lake.metadata import Metadata

#: What an entry of a manifest says of its file: it was there before, is new, or is gone.
EXISTING, ADDED, DELETED = range(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFiles:
    """The files of a snapshot: those with its rows, and those that take rows out again."""

    data: frozenset[str]
    #: With the place in the file, where one holds the deletes of several data files.
    deletes: frozenset[tuple[str, int | None]]


def require_manifests(metadata: Metadata, snapshot: int | None = None) -> None:
    """Every manifest of a snapshot, or of the current one, is there and has its length; only their list is read."""
    wanted = metadata.get("current-snapshot-id") if snapshot is None else snapshot
    found = meta.snapshot(metadata, wanted)
    for manifest in () if found is None else records(found["manifest-list"]):
        location, length = manifest["manifest_path"], manifest["manifest_length"]
        try:
            size = meta.local_path(location).stat().st_size
        except OSError as error:
            raise _damaged(location, error.strerror or str(error)) from error
        if size != length:
            raise _damaged(location, f"it has {size:,} bytes instead of {length:,}")


def live_files(snapshot: Metadata) -> LiveFiles:
    """Every file that a snapshot is made of."""
    found = [
        entry["data_file"]
        for manifest in records(snapshot["manifest-list"])
        for entry in records(manifest["manifest_path"])
        if entry["status"] != DELETED
    ]
    data = frozenset(file["file_path"] for file in found if not file.get("content"))
    deletes = frozenset((file["file_path"], file.get("content_offset")) for file in found if file.get("content"))
    return LiveFiles(data=data, deletes=deletes)


def records(location: str) -> Iterator[Any]:
    """What a manifest or a list of manifests holds, one after the other."""
    import fastavro  # noqa: PLC0415 - only where tables are read; a list takes it a tenth of a millisecond

    try:
        with meta.local_path(location).open("rb") as file:
            yield from fastavro.reader(file)
    except OSError as error:
        raise _damaged(location, error.strerror or str(error)) from error
    except (ValueError, EOFError) as error:
        raise _damaged(location, f"it is not an Avro file: {error}") from error


def _damaged(location: str, told: str) -> LakeDamaged:
    return LakeDamaged(f"a file of the lake cannot be read: {told}", where=location, remedy=meta.RESTORE)
