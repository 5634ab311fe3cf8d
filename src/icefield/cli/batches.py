"""`icefield ls --batches`: the batches of sources, taken in, new or changed, and the gaps between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from icefield.cli import output
from icefield.cli.opening import lake_of
from icefield.cli.output import Column, Count
from icefield.errors import few
from icefield.run.batches import batch_states

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from icefield.project import Project
    from icefield.run.batches import BatchState

_COLUMNS = ("table", "batch", "state", Column(name="files", right=True))
#: So many gaps are named.
_NAMED = 12
NONE = 'No table is taken in by batches: files("landing/{month}.csv", batch="month") declares one that is'


def list_batches(project: Project, chosen: Collection[str], *, as_json: bool) -> None:
    """Prints the batches of the chosen tables, and what lies between the first and the last without files."""
    lake_of(project)  # refused if it was moved
    found = [state for state in batch_states(project) if state.table in chosen]
    if as_json:
        output.json([_as_data(state) for state in found])
    elif not found:
        output.note(NONE)
    else:
        show(found)


def show(found: Sequence[BatchState]) -> None:
    """The batches of each table, one below the other, and a sentence about each table."""
    rows = [(one.table, value, state, Count(files)) for one in found for value, (state, files) in one.batches.items()]
    if rows:
        output.table(_COLUMNS, rows)
        output.line()
    for one in found:
        output.sentence(f"{one.table}: {_summary(one)}")


def _as_data(found: BatchState) -> dict[str, Any]:
    batches = [{"batch": value, "state": state, "files": files} for value, (state, files) in found.batches.items()]
    return {"table": found.table, "batches": batches, "gaps": found.gaps}


def _summary(found: BatchState) -> str:
    values = list(found.batches)
    if not values:
        return "no files have arrived yet"
    count = "1 batch" if len(values) == 1 else f"{len(values):,} batches"
    if not found.periodic or len(values) == 1:
        return count
    gaps = f"no files for {few(found.gaps, _NAMED)}" if found.gaps else "no gaps"
    return f"{count}, {values[0]} to {values[-1]}, {gaps}"
