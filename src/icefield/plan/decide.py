"""What one table needs, given what it has consumed and where its inputs stand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from icefield.declare import Append, ByKey, Keyed
from icefield.errors import AllFilesGone, FileChanged, FileMissing
from icefield.graph.state import Arrivals

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from icefield.declare import Files
    from icefield.errors import IcefieldError
    from icefield.graph import Edge, Node
    from icefield.graph.state import LandedFile, TableState, TakenFile, Version

#: none: it is up to date. note: only what it remembers changes. build: it is made. append: new rows are added.
#: update: rows of changed keys are replaced. refresh: a `full()` table is computed again. rebuild: an incremental table
#: is computed again from everything. refused: it cannot be done, and nothing is.
Action = Literal["none", "note", "build", "append", "update", "refresh", "rebuild", "refused"]
_NAMED_AT_MOST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The rows of an input to read: all of snapshot `end`, or only those appended after `start`.

    Where the input tells its changes, they are the ones numbered above `after`, up to `until`.
    """

    start: int | None
    end: int | None
    after: int | None = None
    until: int | None = None

    @property
    def changed(self) -> bool:
        """Whether there is anything in it that the table has not seen."""
        return self.after is not None or self.start != self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What happens to one table in a run, and why; not `known` where an input changes in the same run."""

    table: str
    action: Action
    reason: str = ""
    known: bool = True
    ranges: Mapping[str, Range] = field(default_factory=dict)
    arrivals: Arrivals | None = None
    #: Rows that came to or went from each input since the table last read it, where that is known already.
    changed: Mapping[str, int] = field(default_factory=dict)
    #: Why it is refused.
    problem: IcefieldError | None = None

    def as_rebuild(self, reason: str) -> Step:
        """The step that computes everything, in place of one that follows changes."""
        ranges = {name: replace(wanted, start=None, after=None, until=None) for name, wanted in self.ranges.items()}
        return replace(self, action="rebuild", reason=reason, ranges=ranges)

    def noting(self, told: str) -> Step:
        """The same, with one more thing that its reader is to know."""
        return replace(self, reason=f"{self.reason}; {told}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What was asked of a run beyond "whatever is due"."""

    full_refresh: bool = False
    accept: frozenset[str] = frozenset()
    replay: frozenset[str] = frozenset()


def decide(
    node: Node, state: TableState | None, inputs: Mapping[str, TableState], arrivals: Arrivals | None, wishes: Wishes
) -> Step:
    """The step for one table whose inputs all stand where `inputs` says."""
    if arrivals is not None:
        _refuse_changed_files(node, arrivals)
        _refuse_empty_landing(node, arrivals)
    if state is None:
        return _everything(node, "build", "first run", inputs, arrivals)
    if due := _rebuild_reason(node, state, inputs, arrivals, wishes):
        if arrivals is not None:
            _require_files(node, arrivals, due, _way_out(node, state, inputs, arrivals, wishes))
        return _everything(node, "rebuild", due, inputs, arrivals)
    moved = [name for name in node.inputs if not _stands_at(state, inputs[name])]
    if not isinstance(node.refresh, Append | Keyed):
        if moved or (arrivals is not None and (arrivals.new or arrivals.gone or _corrected(node, arrivals))):
            due = _moved_reason(node, moved, arrivals)
            if arrivals is not None:
                _require_files(node, arrivals, due)
            return _everything(node, "refresh", due, inputs, arrivals)
        return _rest(node, state, arrivals)
    if (arrivals is not None and arrivals.new) or moved:
        ranges = {name: _since(state, inputs[name]) for name in node.inputs}
        action: Action = "update" if node.keys else "append"
        return Step(
            table=node.name,
            action=action,
            reason=_moved_reason(node, moved, arrivals),
            ranges=ranges,
            arrivals=arrivals,
        )
    return _rest(node, state, arrivals)


def has_newer_inputs(node: Node, state: TableState, states: Mapping[str, TableState]) -> bool:
    """Whether an input holds rows that a table has not read yet."""
    return any(not _stands_at(state, states[name]) for name in node.inputs if name in states)


def _stands_at(state: TableState, given: TableState) -> bool:
    """Whether a table has consumed all of an input."""
    consumed = state.inputs.get(given.name)
    return consumed is not None and _is_what_was_read(given, consumed)


def _is_what_was_read(given: TableState, consumed: Version) -> bool:
    """Whether an input has the rows that were read; those that someone else wrote are known by their snapshot alone."""
    if given.meddled:
        return given.version.snapshot == consumed.snapshot
    return given.version.holds_rows_of(consumed)


def _since(state: TableState, given: TableState) -> Range:
    """What has become of an input since the table last read it."""
    consumed, now = state.inputs[given.name], given.version
    if _is_what_was_read(given, consumed):
        return Range(start=now.snapshot, end=now.snapshot)
    if given.changes is not None:
        return Range(start=now.snapshot, end=now.snapshot, after=consumed.number, until=now.number)
    return Range(start=consumed.snapshot, end=now.snapshot)


def _everything(
    node: Node, action: Action, reason: str, inputs: Mapping[str, TableState], arrivals: Arrivals | None
) -> Step:
    ranges = {name: Range(start=None, end=inputs[name].version.snapshot) for name in node.inputs}
    return Step(table=node.name, action=action, reason=reason, ranges=ranges, arrivals=arrivals)


def _rest(node: Node, state: TableState, arrivals: Arrivals | None) -> Step:
    if arrivals is not None and arrivals.touched:
        return Step(
            table=node.name,
            action="note",
            reason=f"{_files(arrivals.touched)} touched, content unchanged",
            arrivals=arrivals,
        )
    if state.meddled:
        return Step(table=node.name, action="note", reason="rows changed outside icefield accepted", arrivals=arrivals)
    if state.fingerprint != node.fingerprint or state.checks_fingerprint != node.checks_fingerprint:
        return Step(table=node.name, action="note", reason="new code accepted without a rebuild", arrivals=arrivals)
    return Step(table=node.name, action="none", reason="up to date", arrivals=arrivals)


def _rebuild_reason(
    node: Node, state: TableState, inputs: Mapping[str, TableState], arrivals: Arrivals | None, wishes: Wishes
) -> str:
    """Why everything must be computed again, "" if it need not."""
    asked = _asked_reason(node, state, wishes)
    incremental = isinstance(node.refresh, Append | Keyed)
    if arrivals is not None and (asked or incremental) and (withdrawn := _withdrawn_reason(node, arrivals)):
        return f"{asked}; {withdrawn}" if asked else withdrawn
    if asked or not incremental:
        return asked
    return next((told for edge in node.edges if (told := _broken(node, edge, state, inputs))), "")


def _asked_reason(node: Node, state: TableState, wishes: Wishes) -> str:
    """Why everything is computed again wherever the inputs stand."""
    if wishes.full_refresh:
        return "--full-refresh"
    if node.name in wishes.replay:
        return "its quarantine is replayed"
    if state.fingerprint != node.fingerprint and node.name not in wishes.accept:
        return "its code changed"
    if state.checks_fingerprint != node.checks_fingerprint and node.name not in wishes.accept:
        return "its checks changed"
    if state.meddled and node.name not in wishes.accept:
        return "its rows were changed outside icefield"
    return ""


def _withdrawn_reason(node: Node, arrivals: Arrivals) -> str:
    """Why rows that came from files leave the table."""
    told = [f"{_files(arrivals.changed)} corrected"] if _corrected(node, arrivals) else []
    return "; ".join([*told, *_gone(arrivals)])


def _gone(arrivals: Arrivals) -> list[str]:
    if not arrivals.gone:
        return []
    count = "1 file" if len(arrivals.gone) == 1 else f"{len(arrivals.gone)} files"
    return [f"{count} removed" + (f": {_files(arrivals.gone)}" if len(arrivals.gone) <= _NAMED_AT_MOST else "")]


def _broken(node: Node, edge: Edge, state: TableState, inputs: Mapping[str, TableState]) -> str:
    """Why a table cannot follow one of its inputs from where it stands, "" if it can."""
    if edge.table is None:
        return ""
    consumed, now = state.inputs.get(edge.table), inputs[edge.table]
    if consumed is None:
        return f"{edge.table} is a new input"
    if _is_what_was_read(now, consumed):
        return ""
    if now.meddled:
        return f"the rows of {edge.table} were changed outside icefield"
    if consumed.is_meddled:
        return f"it read rows of {edge.table} that had been changed outside icefield"
    if edge.lookup and not (edge.on and isinstance(node.refresh, ByKey)):
        return f"the lookup {edge.table} changed"
    if consumed.epoch != now.version.epoch:
        return f"{edge.table} was rebuilt"
    if now.changes is None:
        unbroken = _only_appends(now, consumed.snapshot)
        return "" if unbroken else f"{edge.table} has no continuous history of appends since it was last read"
    if isinstance(node.refresh, Append):
        return f"{edge.table} may have changed existing rows"
    if consumed.number >= now.changes:
        return ""
    return f"the changelog of {edge.table} no longer covers the changes since it was last read"


def read_by_all(table: TableState, followers: Iterable[TableState]) -> int:
    """The number up to which nobody needs what a table told: its followers have read that, or rebuild anyway."""
    read = [state.inputs[table.name] for state in followers if table.name in state.inputs]
    following = [one.number for one in read if one.epoch == table.version.epoch and one.number >= (table.changes or 0)]
    return min(following, default=table.version.number)


def _only_appends(now: TableState, start: int | None) -> bool:
    """Whether nothing but appends and compactions lie between what was consumed and now."""
    for snapshot, operation in now.lineage:
        if snapshot == start:
            return True
        if operation not in ("append", "replace"):
            return False
    return start is None


def _corrected(node: Node, arrivals: Arrivals) -> bool:
    return bool(arrivals.changed) and _policy(node) == "replace"


def _policy(node: Node) -> str:
    source: Files = node.source  # type: ignore[assignment]
    return source.changed


def _refuse_changed_files(node: Node, arrivals: Arrivals) -> None:
    if arrivals.changed and _policy(node) == "fail":
        raise FileChanged(
            f"the content of {_files(arrivals.changed)} has changed since ingestion",
            where=f"{node.name}, {node.location}",
            remedy='give the corrected file a new name, or declare files(..., changed="replace" or "ignore")',
        )


def _refuse_empty_landing(node: Node, arrivals: Arrivals) -> None:
    """A disk that is not mounted looks like a folder from which everything was deleted."""
    if arrivals.gone and not arrivals.landed:
        raise AllFilesGone(
            f"{_gone(arrivals)[0]}, and no other files are left; the rows of {node.name} were not changed",
            where=f"{node.name}, {node.location}",
            remedy="restore the files (is their disk mounted?); to remove all rows, leave an empty file there",
        )


def _way_out(
    node: Node, state: TableState, inputs: Mapping[str, TableState], arrivals: Arrivals, wishes: Wishes
) -> str:
    """What else can be done where a rebuild lacks files, "" if only the author can tell."""
    if node.name in wishes.replay:  # it has nothing to accept, and until then its rows just wait
        return "and try again: a replay or discard reads all files of the table; until then the rows stay in quarantine"
    accepting = replace(wishes, accept=wishes.accept | {node.name})
    if _rebuild_reason(node, state, inputs, arrivals, accepting):
        return ""
    return f"or keep the rows as they are: icefield run --accept {node.name}"


def _require_files(node: Node, arrivals: Arrivals, due: str, otherwise: str = "") -> None:
    """A rebuild must read what was read before; a correction is read only where the author said `replace`."""
    if arrivals.changed and _policy(node) == "ignore":
        raise FileChanged(
            f"{node.name} must be rebuilt ({due}), but the content of {_files(arrivals.changed)} has changed since"
            " ingestion",
            where=f"{node.name}, {node.location}",
            remedy="restore the old content, " + (otherwise or 'or ingest the new one: files(..., changed="replace")'),
        )
    if arrivals.missing:
        raise FileMissing(
            f"{node.name} must be rebuilt ({due}), but {_files(arrivals.missing)}, ingested earlier, cannot be found",
            where=f"{node.name}, {node.location}",
            remedy="restore the files, " + (otherwise or 'or remove their rows: files(..., deleted="withdraw")'),
        )


def _moved_reason(node: Node, moved: list[str], arrivals: Arrivals | None) -> str:
    told = []
    if arrivals is not None and arrivals.new:
        told.append(f"{_files(arrivals.new)} arrived")
    if arrivals is not None and _corrected(node, arrivals):
        told.append(f"{_files(arrivals.changed)} corrected")
    if arrivals is not None:
        told += _gone(arrivals)
    if moved:
        told.append(f"{', '.join(moved)} changed")
    return "; ".join(told)


def _files(files: tuple[LandedFile, ...] | tuple[TakenFile, ...]) -> str:
    if len(files) > _NAMED_AT_MOST:
        return f"{len(files)} files"
    return ", ".join(file.path for file in files)
