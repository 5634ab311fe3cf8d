"""What one table needs, given what it has consumed and where its inputs stand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from icefield.declare import Append, ByKey, Keyed
from icefield.plan.arrivals import arrivals_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from icefield.errors import IcefieldError
    from icefield.graph import Edge, Node
    from icefield.graph.news import News
    from icefield.graph.state import TableState, Version
    from icefield.plan.arrivals import Arrivals

#: none: it is up to date. note: only what it remembers changes. build: it is made. append: new rows are added.
#: update: rows that changed, or rows of changed keys, are replaced. refresh: a `full()` table is computed again.
#: rebuild: an incremental table is computed again from everything. refused: it cannot be done, and nothing is.
Action = Literal["none", "note", "build", "append", "update", "refresh", "rebuild", "refused"]


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
    #: What its source has that it has not taken in.
    news: News | None = None
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
    node: Node, state: TableState | None, inputs: Mapping[str, TableState], news: News | None, wishes: Wishes
) -> Step:
    """The step for one table whose inputs all stand where `inputs` says."""
    arrived = None if news is None else arrivals_of(node, news)
    if arrived is not None:
        arrived.require_sound(accepted=node.name in wishes.accept)
    if state is None:
        return _everything(node, "build", "first run", inputs, news)
    if due := _rebuild_reason(node, state, inputs, arrived, wishes):
        if arrived is not None:
            arrived.require_everything(due, _way_out(node, state, inputs, arrived, wishes))
        return _everything(node, "rebuild", due, inputs, news)
    moved = [name for name in node.inputs if not _stands_at(state, inputs[name])]
    told = _moved_reason(moved, arrived, replayed=node.name in wishes.replay)
    if not told:
        return _rest(node, state, arrived, news)
    if not isinstance(node.refresh, Append | Keyed):
        if arrived is not None:
            arrived.require_everything(told)
        return _everything(node, "refresh", told, inputs, news)
    ranges = {name: _since(state, inputs[name]) for name in node.inputs}
    leaves = (arrived is not None and arrived.left) or node.name in wishes.replay
    removed = any(wanted.after is not None for wanted in ranges.values())
    action: Action = "update" if node.keys or leaves or removed else "append"
    return Step(table=node.name, action=action, reason=told, ranges=ranges, news=news)


def has_newer_inputs(node: Node, state: TableState, states: Mapping[str, TableState]) -> bool:
    """Whether an input holds rows that a table has not read yet."""
    return bool(newer_inputs(node, state, states))


def newer_inputs(node: Node, state: TableState, states: Mapping[str, TableState]) -> list[str]:
    """The inputs that hold rows which a table has not read yet."""
    return [name for name in node.inputs if name in states and not _stands_at(state, states[name])]


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


def _everything(node: Node, action: Action, reason: str, inputs: Mapping[str, TableState], news: News | None) -> Step:
    ranges = {name: Range(start=None, end=inputs[name].version.snapshot) for name in node.inputs}
    return Step(table=node.name, action=action, reason=reason, ranges=ranges, news=news)


def _rest(node: Node, state: TableState, arrived: Arrivals | None, news: News | None) -> Step:
    told = "" if arrived is None else arrived.noted
    if not told and state.meddled:
        told = "rows changed outside icefield accepted"
    changed = state.fingerprint != node.fingerprint or state.checks_fingerprint != node.checks_fingerprint
    if not told and changed:
        told = "new code accepted without a rebuild"
    return Step(table=node.name, action="note" if told else "none", reason=told or "up to date", news=news)


def _rebuild_reason(
    node: Node, state: TableState, inputs: Mapping[str, TableState], arrived: Arrivals | None, wishes: Wishes
) -> str:
    """Why everything must be computed again, "" if it need not."""
    asked = _asked_reason(node, state, wishes)
    incremental = isinstance(node.refresh, Append | Keyed)
    left = arrived.left if arrived is not None else ""
    if asked or not incremental:
        return f"{asked}; {left}" if asked and left else asked
    replayed = "its quarantine is replayed" if node.name in wishes.replay else ""
    if replayed and (node.keys or node.source is None):
        return replayed
    if arrived is not None and not node.keys and (left or (replayed and node.splits_by_unique)):
        if not arrived.by_file:
            return left or replayed
        if not state.origin:
            return f"{left or replayed}, and its rows do not tell their file (the column source_file)"
    return next((told for edge in node.edges if (told := _broken(node, edge, state, inputs))), "")


def _asked_reason(node: Node, state: TableState, wishes: Wishes) -> str:
    """Why everything is computed again wherever the inputs stand."""
    if wishes.full_refresh:
        return "--full-refresh"
    if state.fingerprint != node.fingerprint and node.name not in wishes.accept:
        return "its code changed"
    if state.checks_fingerprint != node.checks_fingerprint and node.name not in wishes.accept:
        return "its checks changed"
    if state.meddled and node.name not in wishes.accept:
        return "its rows were changed outside icefield"
    return ""


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


def _way_out(node: Node, state: TableState, inputs: Mapping[str, TableState], arrived: Arrivals, wishes: Wishes) -> str:
    """What else can be done where a rebuild lacks what was read before, "" if only the author can tell."""
    if node.name in wishes.replay:  # it has nothing to accept, and until then its rows just wait
        return "and try again: until then the rows stay in quarantine"
    accepting = replace(wishes, accept=wishes.accept | {node.name})
    if _rebuild_reason(node, state, inputs, arrived, accepting):
        return ""
    return f"or keep the rows as they are: icefield run --accept {node.name}"


def _moved_reason(moved: list[str], arrived: Arrivals | None, *, replayed: bool) -> str:
    told = [] if arrived is None else [text for text in (arrived.came, arrived.left) if text]
    if moved:
        told.append(f"{', '.join(moved)} changed")
    if replayed:
        told.append("its quarantine is replayed")
    return "; ".join(told)
