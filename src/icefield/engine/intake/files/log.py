"""What `ops.files` remembers of files: taken, touched, replaced, or withdrawn with their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from icefield.engine.intake.files.heads import FileHead
    from icefield.engine.intake.files.reading import Reading
    from icefield.graph.news import FilesNews, TakenFile
    from icefield.plan import Step


def taken_files(
    run: str, step: Step, news: FilesNews, heads: Sequence[FileHead], reading: Reading
) -> list[dict[str, Any]]:
    """Files that are new, look different now, or went."""
    before = {file.path: file for file in news.taken}
    sequence = news.next_sequence
    common = {"table": step.table, "run": run, "sequence": sequence}
    former = [file for file in news.former if not file.withdrawn]
    gone = [{**common, **_withdrawn(file)} for file in (*news.gone, *former)]
    common["sequence"] = sequence + bool(former)  # a file may be among those and be taken again
    different = [head for head in heads if not _is_as_before(head, before)]
    read = {head.arrival: reading.files[head.arrival] for head in different}
    return gone + [
        {
            **common,
            "path": head.file.path,
            "status": _status(read[head.arrival].digest, before.get(head.file.path)),
            "size": head.file.size,
            "modified_ns": head.file.modified_ns,
            "sha256": read[head.arrival].digest,
            "rows": read[head.arrival].rows,
            "taken_ms": head.taken_ms,
            "arrival": head.arrival,
        }
        for head in different
    ]


def noted_files(run: str, step: Step, news: FilesNews) -> list[dict[str, Any]]:
    """Files that were touched, and found to be what they were."""
    before = {file.path: file for file in news.taken}
    return [
        {
            "table": step.table,
            "run": run,
            "sequence": news.next_sequence,
            "path": file.path,
            "status": "touched",
            "size": file.size,
            "modified_ns": file.modified_ns,
            "sha256": before[file.path].sha256,
            "rows": 0,
            "taken_ms": before[file.path].taken_ms,
            "arrival": before[file.path].order,
        }
        for file in news.touched
    ]


def _withdrawn(file: TakenFile) -> dict[str, Any]:
    """A file that went: nothing of it is left in the table."""
    return {
        "path": file.path,
        "status": "withdrawn",
        "size": file.size,
        "modified_ns": file.modified_ns,
        "sha256": file.sha256,
        "rows": 0,
        "taken_ms": file.taken_ms,
        "arrival": file.order,
    }


def _is_as_before(head: FileHead, before: Mapping[str, TakenFile]) -> bool:
    known = before.get(head.file.path)
    return known is not None and (known.size, known.modified_ns) == (head.file.size, head.file.modified_ns)


def _status(content: str, known: TakenFile | None) -> str:
    if known is None:
        return "taken"
    return "touched" if content == known.sha256 else "replaced"
