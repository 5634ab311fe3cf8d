"""What upkeep may remove, and what it should write together: pure rules over what is known of a lake's tables.

A version of the lake is a publish time: all tables of a run have the same. Which versions are kept is decided for the
whole lake, so that whoever reads it as of a time gets tables that belong together.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from icefield.graph.state import TableState

_MINUTE, _HOUR, _DAY = 60_000, 3_600_000, 86_400_000
#: Versions up to an age, in milliseconds, are thinned to the last one of each span.
_THINNED = ((_HOUR, 5 * _MINUTE), (_DAY, _HOUR))
#: Files are written together once so many of about the same size are there, and so the number of files of a table
#: grows with the logarithm of its size, and each row is written anew that often.
FEW = 8
#: A file of a level is up to so many times as large as one of the level below.
_GROWTH = 8
_SMALLEST, LARGE = 1_000_000, 64_000_000
#: So much is written together at most.
MOST = 2 * LARGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Which versions of a lake stay readable: all that are younger than `keep_ms`, and the last ones in any case.

    `thinned`, for a lake with a version every few seconds: older than the last ones, the last version of each five
    minutes stays for an hour, that of each hour for a day, and that of each day for as long as versions are kept.
    """

    keep_ms: int
    thinned: bool = False
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The snapshots of one table."""

    current: int
    snapshots: frozenset[int]
    #: When each became current, ascending.
    log: tuple[tuple[int, int], ...]
    #: The current snapshot and its ancestors, newest first.
    lineage: tuple[int, ...]
    #: Snapshots that tags and branches name.
    named: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The snapshots of a table that stay, and when each of them became current."""

    snapshots: frozenset[int]
    log: tuple[tuple[int, int], ...]

    def tells_the_same_as(self, log: Sequence[tuple[int, int]]) -> bool:
        """Whether a log has no other versions since the oldest that is kept of the lake."""
        return not self.log or [entry for entry in log if entry[0] > self.log[0][0]] == list(self.log[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """A snapshot that a consumer has read; `follows`: it reads on from there, so that all since then must be there."""

    snapshot: int
    follows: bool


def kept_times(times: Iterable[int], now_ms: int, retention: Retention) -> frozenset[int]:
    """The publish times of a lake that are kept."""
    ordered = sorted(set(times))
    last, older = ordered[-retention.last :], ordered[: -retention.last]
    young = [time for time in older if time >= now_ms - retention.keep_ms]
    if not retention.thinned:
        return frozenset((*last, *young))
    thinned = {_span(time, now_ms): time for time in young}  # of each span the last one
    return frozenset((*last, *thinned.values()))


def _span(time: int, now_ms: int) -> tuple[int, int]:
    length = next((length for age, length in _THINNED if now_ms - time < age), _DAY)
    return length, time // length


def kept_versions(history: History, times: Collection[int], consumed: Collection[Consumed], last: int) -> Kept:
    """What stays of a table where a lake's versions of these times are kept.

    The table's own last snapshots stay for a while even if they are none of these: see `lake.sweeping`.
    """
    log = _log_at(history, times)
    kept = {history.current, *history.named, *(snapshot for _, snapshot in log)}
    kept.update(history.lineage[:last])  # not those of the log alone, which upkeep itself shortens
    kept.update(snapshot for _, snapshot in history.log[-last:])
    for one in consumed:
        kept.add(one.snapshot)
        if one.follows and one.snapshot in history.lineage:
            kept.update(history.lineage[: history.lineage.index(one.snapshot) + 1])
    return Kept(snapshots=frozenset(kept) & history.snapshots, log=log)


def _log_at(history: History, times: Collection[int]) -> tuple[tuple[int, int], ...]:
    """The log of a table that knows the given times alone: at each, the snapshot that was current."""
    found: list[tuple[int, int]] = []
    entries = [entry for entry in history.log if entry[1] in history.snapshots]
    place = 0
    for time in sorted(times):
        while place < len(entries) and entries[place][0] <= time:
            place += 1
        if place and (not found or found[-1][1] != entries[place - 1][1]):
            found.append((time, entries[place - 1][1]))
    if entries and (not found or found[-1][1] != history.current):
        found.append((entries[-1][0], history.current))
    return tuple(found)


def consumed_of(table: TableState, consumers: Iterable[TableState]) -> list[Consumed]:
    """The snapshots of a table that its consumers need; one of another epoch reads everything anew in any case."""
    found = []
    for consumer in consumers:
        read = consumer.inputs.get(table.name)
        if read is not None and read.snapshot is not None and read.epoch == table.version.epoch:
            found.append(Consumed(snapshot=read.snapshot, follows=table.changes is None))
    return found


# -- small files


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A data file of a table, its partition, and how many delete files take rows out of it."""

    path: str
    size: int
    deletes: int = 0
    partition: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The files to write together; `applies_deletes`: they are all that have deletes, so that these can go."""

    files: tuple[StoredFile, ...]
    applies_deletes: bool = False

    @property
    def size(self) -> int:
        """How many bytes are read."""
        return sum(file.size for file in self.files)


def compaction(files: Sequence[StoredFile]) -> Compaction | None:
    """Which files of a table to write together, by partition, in the order of their paths; None: none yet.

    Files with deletes are left alone until there are several deletes, and then all of them are written, with what is
    small besides in their partitions.
    """
    deleted = [file for file in files if file.deletes]
    clean = [file for file in files if not file.deletes]
    if sum(file.deletes for file in deleted) >= FEW:
        touched = {file.partition for file in deleted}
        small = [file for file in clean if file.partition in touched and _level(file) == 0]
        return Compaction(files=_ordered([*deleted, *small]), applies_deletes=True)
    parts: dict[tuple[Any, ...], list[StoredFile]] = {}
    for file in clean:
        parts.setdefault(file.partition, []).append(file)
    if found := _bounded(file for part in parts.values() for file in _alike(part)):
        return Compaction(files=found)
    return None


def _alike(files: Sequence[StoredFile]) -> Sequence[StoredFile]:
    """The files of a partition up to the highest level that has several of them."""
    for level in reversed(range(_level_of(LARGE))):
        if sum(_level(file) == level for file in files) >= FEW:
            return [file for file in files if _level(file) <= level]
    return ()


def _bounded(files: Iterable[StoredFile]) -> tuple[StoredFile, ...]:
    """The first files, as many as may be written together."""
    found: list[StoredFile] = []
    for file in _ordered(files):
        if found and sum(one.size for one in found) + file.size > MOST:
            break
        found.append(file)
    return tuple(found)


def _ordered(files: Iterable[StoredFile]) -> tuple[StoredFile, ...]:
    return tuple(sorted(files, key=lambda file: (repr(file.partition), file.path)))


def _level(file: StoredFile) -> int:
    return _level_of(file.size)


def _level_of(size: int) -> int:
    level, limit = 0, _SMALLEST
    while size >= limit:
        level, limit = level + 1, limit * _GROWTH
    return level


# -- metadata files and run folders


def superseded_before(written: Mapping[str, int], before_ms: int) -> list[str]:
    """The metadata files that were superseded before a time; `written`: when each was, in order.

    A file is superseded when the next one is written.
    """
    names = list(written)
    return [name for name, after in itertools.pairwise(names) if written[after] < before_ms]
