"""What `ops.files` is to remember of the files that a step took in or withdrew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icefield.engine.intake.landing import sha256

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from icefield.engine.intake.landing import Intake
    from icefield.engine.intake.receive import Received
    from icefield.graph.state import TakenFile
    from icefield.plan import Step


def filed(
    root: Path, run: str, step: Step, received: Received | None, counts: Mapping[int, int]
) -> list[dict[str, Any]]:
    """Files that are new, look different now, or went; `counts`: the rows of each, by its number."""
    if received is None or step.arrivals is None:
        return []
    before = {file.path: file for file in step.arrivals.taken}
    sequence = step.arrivals.next_sequence
    common = {"table": step.table, "run": run, "sequence": sequence}
    former = [file for file in step.arrivals.former if not file.withdrawn]
    gone = [{**common, **_withdrawn(file)} for file in (*step.arrivals.gone, *former)]
    common["sequence"] = sequence + bool(former)  # a file may be among those and be taken again
    different = [taken for taken in received.intakes if not _is_as_before(taken, before)]
    read = [(taken, sha256(root / taken.file.path)) for taken in different]
    return gone + [
        {
            **common,
            "path": taken.file.path,
            "status": _status(content, before.get(taken.file.path)),
            "size": taken.file.size,
            "modified_ns": taken.file.modified_ns,
            "sha256": content,
            "rows": counts.get(taken.arrival, 0),
            "taken_ms": taken.taken_ms,
            "arrival": taken.arrival,
        }
        for taken, content in read
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


def _is_as_before(taken: Intake, before: Mapping[str, TakenFile]) -> bool:
    known = before.get(taken.file.path)
    return known is not None and (known.size, known.modified_ns) == (taken.file.size, taken.file.modified_ns)


def _status(content: str, known: TakenFile | None) -> str:
    if known is None:
        return "taken"
    return "touched" if content == known.sha256 else "replaced"
