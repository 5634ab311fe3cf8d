"""Looks at manifests before DuckDB reads them: it does so in threads where an error ends the whole process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icefield.errors import LakeDamaged
from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from icefield.lake.metadata import Metadata


def require_manifests(metadata: Metadata, snapshot: int | None = None) -> None:
    """Every manifest of a snapshot, or of the current one, is there and has its length; only their list is read."""
    wanted = metadata.get("current-snapshot-id") if snapshot is None else snapshot
    found = meta.snapshot(metadata, wanted)
    for manifest in () if found is None else _listed(found["manifest-list"]):
        location, length = manifest["manifest_path"], manifest["manifest_length"]
        try:
            size = meta.local_path(location).stat().st_size
        except OSError as error:
            raise _damaged(location, error.strerror or str(error)) from error
        if size != length:
            raise _damaged(location, f"it has {size:,} bytes instead of {length:,}")


def _listed(location: str) -> list[Any]:
    import fastavro  # noqa: PLC0415 - only where tables are read; a list takes it a tenth of a millisecond

    try:
        with meta.local_path(location).open("rb") as file:
            return list(fastavro.reader(file))
    except OSError as error:
        raise _damaged(location, error.strerror or str(error)) from error
    except (ValueError, EOFError) as error:
        raise _damaged(location, f"it is not an Avro file: {error}") from error


def _damaged(location: str, told: str) -> LakeDamaged:
    return LakeDamaged(f"a file of the lake cannot be read: {told}", where=location, remedy=meta.RESTORE)
