"""The published versions of a table, from its metadata alone."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from icefield.declare.suggest import nearest
from icefield.errors import UnknownVersion
from icefield.lake import metadata as meta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from icefield.lake.metadata import Metadata

#: The version that readers see.
LATEST = "latest"
#: So many versions are listed where one was asked for that is not there.
_LISTED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """One published version of a table: which run made it, what it changed, what it came to."""

    snapshot: int
    published_at: dt.datetime
    run: str
    #: The batch that the run took in, "" if its sources have none.
    batch: str
    operation: str
    rows_added: int
    rows_removed: int
    rows_total: int
    growth: int
    bytes_total: int
    files_total: int


def history(metadata: Metadata) -> tuple[TableVersion, ...]:
    """Every version that readers could see, oldest first; the inner steps of a run are counted into its version."""
    known = {entry["snapshot-id"]: entry for entry in metadata.get("snapshots", [])}
    versions: list[TableVersion] = []
    before: int | None = None
    for entry in metadata.get("snapshot-log", []):
        if (snapshot := known.get(entry["snapshot-id"])) is None:  # expired
            continue
        total = meta.records_in(snapshot["summary"])
        added = _added(known, snapshot, before)
        earlier = versions[-1].rows_total if versions else total - added  # what came before is not known any more
        versions.append(
            TableVersion(
                snapshot=snapshot["snapshot-id"],
                published_at=dt.datetime.fromtimestamp(entry["timestamp-ms"] / 1000, dt.UTC),
                run=snapshot["summary"].get(meta.RUN, ""),
                batch=snapshot["summary"].get(meta.BATCH, ""),
                operation=snapshot["summary"]["operation"],
                rows_added=added,
                rows_removed=earlier + added - total,
                rows_total=total,
                growth=total - (versions[-1].rows_total if versions else 0),
                bytes_total=_count(snapshot, "total-files-size"),
                files_total=_count(snapshot, "total-data-files"),
            )
        )
        before = snapshot["snapshot-id"]
    return tuple(versions)


def find_version(table: str, versions: Sequence[TableVersion], wanted: str) -> TableVersion:
    """The version of a run (its id, or the unique beginning of one), of a batch, or with a snapshot id, or `latest`.

    Of a batch that was taken in more than once it is the last.
    """
    if versions and wanted == LATEST:
        return versions[-1]
    meant = [one for one in versions if wanted and wanted in (one.run, one.batch, str(one.snapshot))]
    begun = {one.run: one for one in versions if wanted and one.run.startswith(wanted)}
    if meant:
        return meant[-1]
    if len(begun) == 1:
        return next(iter(begun.values()))
    if begun:
        raise UnknownVersion(
            f"several versions of {table} are of runs that start with `{wanted}`",
            remedy=f"write more characters of the id: {_named(list(begun.values()))}",
        )
    raise UnknownVersion(
        f"{table} has no version `{wanted}`" if versions else f"{table} has no versions yet",
        where=table,
        remedy=_near(wanted, versions) if versions else "a run that writes rows publishes the first one",
    )


def _near(wanted: str, versions: Sequence[TableVersion]) -> str:
    """The versions with a name like the one that was asked for, or the newest."""
    known = {name: one for one in versions for name in (one.run, one.batch, str(one.snapshot)) if name}
    near = list({known[name].snapshot: known[name] for name in nearest(wanted, known)}.values())
    if near:
        return f"did you mean {_named(near)}? `icefield table history` lists all"
    return f"versions, newest first: {_named(versions[::-1])}; or write latest"


def _named(versions: Sequence[TableVersion]) -> str:
    told = [f"{one.run or one.snapshot}{f' (batch {one.batch})' if one.batch else ''}" for one in versions[:_LISTED]]
    more = f" and {len(versions) - _LISTED} more" if len(versions) > _LISTED else ""
    return ", ".join(told) + more


def _added(known: dict[int, Metadata], snapshot: Metadata, before: int | None) -> int:
    """Rows that a run added, as it counted them itself: Iceberg counts every row of a table that is written anew."""
    told = snapshot["summary"].get(meta.ROWS_ADDED)
    if told is not None:
        return int(told)
    return sum(_count(step, "added-records") for step in _steps(known, snapshot["snapshot-id"], before))


def _steps(known: dict[int, Metadata], last: int, before: int | None) -> list[Metadata]:
    """The snapshots of one publish: from its last back to the one before it."""
    steps = []
    found = known.get(last)
    while found is not None and found["snapshot-id"] != before:
        steps.append(found)
        found = known.get(found.get("parent-snapshot-id"))  # type: ignore[arg-type]  # the first one has none
    return steps


def _count(snapshot: Metadata, key: str) -> int:
    return int(snapshot["summary"].get(key, 0))
