"""Writes small files of a table together, on a branch, by PyIceberg: the rows stay the same, deletes are applied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from icefield.errors import CompactionDiffers
from icefield.failpoint import failpoint
from icefield.lake import metadata as meta
from icefield.lake.arrow_scan import opened, replacement
from icefield.lake.manifests import records
from icefield.lake.rewriting import can_be_rewritten, partition_of, rewritten
from icefield.plan.upkeep import Compaction, StoredFile, compaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyiceberg.table import FileScanTask, Table

    from icefield.lake.branch import Branch

#: So many manifests are merged even where no files are.
_MANIFESTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What became of one table: how many files were written together, of how many bytes, and how many came of it."""

    table: str
    files: int
    size: int
    into: int
    #: What the published snapshot is to say of itself.
    summary: dict[str, str]


def files_of(table: Table) -> list[tuple[StoredFile, FileScanTask]]:
    """The data files of a table's current version."""
    found = []
    for task in table.scan().plan_files():
        file = task.file
        stored = StoredFile(
            path=file.file_path,
            size=file.file_size_in_bytes,
            deletes=len(task.delete_files),
            partition=partition_of(file),
        )
        found.append((stored, task))
    return found


def due(branch: Branch, table: str) -> Compaction | None:
    """Which files of a table should be written together; none where only its manifests are many."""
    metadata = branch.base_metadata(table)
    current = None if metadata is None else meta.current_snapshot(metadata)
    if metadata is None or current is None or not _may_be_compacted(metadata):
        return None
    with opened(branch, table) as found:
        stored = files_of(found)
        wanted = compaction([file for file, _ in stored])
        if wanted is not None and not _can_be_rewritten(found, stored, wanted):
            wanted = None
    if wanted is None and sum(1 for _ in records(current["manifest-list"])) >= _MANIFESTS:
        return Compaction(files=())
    return wanted


def _can_be_rewritten(table: Table, stored: Iterable[tuple[StoredFile, FileScanTask]], wanted: Compaction) -> bool:
    tasks = {file.path: task for file, task in stored}
    return all(can_be_rewritten(table, tasks[file.path]) for file in wanted.files)


def compact(branch: Branch, table: str, wanted: Compaction) -> Compacted | None:
    """Writes these files of a table together; None where PyIceberg cannot: Python has no year after 9999."""
    base = branch.base_metadata(table)
    assert base is not None
    branch.prepare(table)
    with opened(branch, table) as found:
        paths = {file.path: place for place, file in enumerate(wanted.files)}
        tasks = [task for file, task in files_of(found) if file.path in paths]
        tasks.sort(key=lambda task: paths[task.file.file_path])
        try:
            into = _replace(found, tasks, drops_deletes=wanted.applies_deletes)
        except OverflowError:
            branch.forget(table)
            return None
    failpoint("upkeep.compacted", table)
    staged = branch.staged_metadata(table)
    assert staged is not None
    summary = _summary(base, staged, drops_deletes=wanted.applies_deletes)
    before, after = meta.total_records(base), _records(staged, summary)
    if before != after:
        raise CompactionDiffers(table, before, after)
    return Compacted(table=table, files=len(tasks), size=wanted.size, into=into, summary=summary)


def _replace(table: Table, tasks: Sequence[FileScanTask], *, drops_deletes: bool) -> int:
    written = []
    with table.transaction() as work, replacement(work, table, {}, drops_deletes=drops_deletes) as replacing:
        for task in tasks:
            replacing.delete_data_file(task.file)
        for file in rewritten(table, tasks, replacing.commit_uuid):
            replacing.append_data_file(file)
            written.append(file)
    return len(written)


def _summary(base: meta.Metadata, staged: meta.Metadata, *, drops_deletes: bool) -> dict[str, str]:
    """A compaction is a `replace`, of the run whose rows these are."""
    before, now = meta.current_snapshot(base), meta.current_snapshot(staged)
    assert before is not None
    assert now is not None
    told = {key: value for key, value in before["summary"].items() if key in (meta.RUN, meta.BATCH)}
    told |= {"operation": "replace", meta.ROWS_ADDED: "0", meta.ROWS_REMOVED: "0"}
    if drops_deletes:
        gone = {key: before["summary"].get(f"total-{key}", "0") for key in ("delete-files", "position-deletes")}
        told |= {f"removed-{key}": value for key, value in gone.items() if value != "0"}
        told |= {f"total-{key}": "0" for key in gone}
    return told


def _records(staged: meta.Metadata, summary: dict[str, str]) -> int:
    now = meta.current_snapshot(staged)
    assert now is not None
    return meta.records_in({**now["summary"], **summary})


def _may_be_compacted(metadata: meta.Metadata) -> bool:
    """Whether PyIceberg can rewrite the table's files: format version 2, no equality deletes."""
    found = meta.current_snapshot(metadata)
    return found is not None and metadata.get("format-version") == 2 and not meta.has_deletes(found, "equality-deletes")
