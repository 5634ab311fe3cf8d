"""Cursors and news of sources, as closed sets of types: what a table has taken in, and what has come since.

Each kind of source has one cursor and one kind of news. A cursor is stored with the table, as one property. News are
found without Spark, by looking at the source; the planner asks them through `icefield.plan.arrivals`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from icefield.declare import Column


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesCursor:
    """How many files a table holds the rows of, and a digest of the paths, sizes and times of those that were there.

    `columns` are those that files brought along and that are not declared, with their types.
    """

    count: int
    digest: str
    columns: tuple[tuple[str, str], ...] = ()

    @property
    def added(self) -> tuple[Column, ...]:
        """The undeclared columns that files brought along so far."""
        return tuple(Column(name, kind) for name, kind in self.columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramesCursor:
    """How many rows of a function were taken in, and their digest."""

    count: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsCursor:
    """The offsets up to which messages were taken in, of each partition of each topic.

    `ids` tell a topic from another one of the same name that was created later. `arrivals` counts the ranges of offsets
    that were taken in so far: each has a place in the order of arrival. Those before `since` were taken in by a table
    of this name that was dropped: nothing is left of them.
    """

    #: Topic and its id.
    ids: tuple[tuple[str, str], ...] = ()
    #: Topic, partition, the first offset that was taken in, and the next one to take in.
    positions: tuple[tuple[str, int, int, int], ...] = ()
    arrivals: int = 0
    since: int = 0
    #: Why messages that were taken in, or should have been, cannot be had any more; "" if all can.
    lost: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationCursor:
    """The rows of a database's relation that a table holds: how many, and the sum of their digests.

    Where it is read by a cursor column, `value` is the highest value that was taken in, as the database writes it, and
    `tied` rows have exactly that one: more of them may come. `columns` are those that the digests are made of.
    """

    count: int = 0
    digest: str = "0"
    columns: tuple[str, ...] = ()
    #: The cursor column; "" where the relation is read whole.
    column: str = ""
    value: str = ""
    tied: int = 0
    tied_digest: str = "0"
    #: Reads so far have numbers below `arrivals`, and those that the table's rows are from begin with `first`.
    arrivals: int = 0
    first: int = 0
    #: Why what was taken in cannot be compared with the relation any more; "" if it can.
    lost: str = ""

    @property
    def follows(self) -> bool:
        """Whether there is a value from which to go on."""
        return bool(self.column and self.value)


Cursor = FilesCursor | FramesCursor | TopicsCursor | RelationCursor
_CURSORS: Mapping[str, type[Cursor]] = {
    "files": FilesCursor,
    "frames": FramesCursor,
    "topics": TopicsCursor,
    "relation": RelationCursor,
}


def cursor_json(cursor: Cursor) -> str:
    """A cursor as text."""
    kind = next(name for name, known in _CURSORS.items() if isinstance(cursor, known))
    told = {key: value for key, value in asdict(cursor).items() if value not in ((), "")}
    return json.dumps({"kind": kind, **told}, separators=(",", ":"))


def parse_cursor(text: str) -> Cursor:
    """The cursor that `cursor_json` wrote; ValueError for anything else."""
    told: dict[str, Any] = json.loads(text)
    kind = _CURSORS.get(told.pop("kind", "files"))  # files were the only kind once, and did not say so
    if kind is None:
        raise ValueError(f"{text!r} is not a cursor of this version")
    values: dict[str, Any] = {
        key: tuple(tuple(one) if isinstance(one, list) else one for one in value) if isinstance(value, list) else value
        for key, value in told.items()
    }
    return kind(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFile:
    """A file that a source's path matches, as the file system shows it."""

    path: str
    size: int
    modified_ns: int
    parts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenFile:
    """A file that a table has taken in, as the lake remembers it."""

    path: str
    size: int
    modified_ns: int
    sha256: str
    run: str
    taken_ms: int
    order: int
    sequence: int = 0
    #: It went, and its rows with it; what the lake still needs of it is that its place is taken.
    withdrawn: bool = False
    parts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesNews:
    """What has happened in a source's folder since the table last looked.

    Of the files that were taken in and are not there now, `missing` are those whose rows stay, and `gone` those whose
    rows are to be withdrawn. `withdrawn` are files that were gone before: if one comes back, it is new.
    """

    landed: tuple[LandedFile, ...] = ()
    new: tuple[LandedFile, ...] = ()
    touched: tuple[LandedFile, ...] = ()
    changed: tuple[LandedFile, ...] = ()
    #: Files with other content that the author said to ignore.
    ignored: tuple[LandedFile, ...] = ()
    missing: tuple[TakenFile, ...] = ()
    gone: tuple[TakenFile, ...] = ()
    taken: tuple[TakenFile, ...] = ()
    withdrawn: tuple[TakenFile, ...] = ()
    #: Files of a table of this name that was dropped: nothing is left of them.
    former: tuple[TakenFile, ...] = ()
    #: Files of other batches, which a later run takes in.
    later: tuple[LandedFile, ...] = ()
    #: Undeclared columns that the table has, and those that the new files bring along.
    columns: tuple[Column, ...] = ()
    added: tuple[Column, ...] = ()

    @property
    def next_order(self) -> int:
        """The place in the order of arrival for the next new file; no two files ever have the same."""
        return max((file.order for file in self._noted), default=-1) + 1

    @property
    def next_sequence(self) -> int:
        """What comes after everything that was noted of files."""
        return max((file.sequence for file in self._noted), default=0) + 1

    @property
    def _noted(self) -> tuple[TakenFile, ...]:
        return (*self.taken, *self.withdrawn, *self.former)

    @property
    def new_bytes(self) -> int:
        """The size of what is new."""
        return sum(file.size for file in (*self.new, *self.changed))

    @property
    def moved(self) -> tuple[LandedFile | TakenFile, ...]:
        """The files whose rows come, change or go."""
        return (*self.new, *self.changed, *self.gone)

    @property
    def cursor(self) -> FilesCursor:
        """What a table stores of the files whose rows it holds, once it has taken in what arrived."""
        before = {file.path: file for file in self.taken}
        late = {file.path for file in self.later}
        there = [before[file.path] if file.path in late else file for file in self.landed]
        return FilesCursor(
            count=len(self.landed) + len(self.missing),
            digest=digest_of(there),
            columns=tuple((column.name, column.type) for column in (*self.columns, *self.added)),
        )

    def values(self, part: str) -> list[str]:
        """The values of a part of the path among files whose rows come, change or go, ascending."""
        return sorted({dict(file.parts)[part] for file in self.moved})

    def only(self, part: str, value: str) -> FilesNews:
        """The news of one batch; files of other batches stay for later runs."""

        def within(files: Iterable[Any]) -> tuple[Any, ...]:
            return tuple(file for file in files if dict(file.parts)[part] == value)

        new = within(self.new)
        waiting = {file.path for file in self.new} - {file.path for file in new}
        return replace(
            self,
            landed=tuple(file for file in self.landed if file.path not in waiting),
            new=new,
            changed=within(self.changed),
            gone=within(self.gone),
            later=tuple(file for file in self.changed if dict(file.parts)[part] != value),
            missing=(*self.missing, *(file for file in self.gone if dict(file.parts)[part] != value)),
        )

    def of_keys(self, keys: Collection[str]) -> frozenset[tuple[str, ...]]:
        """The keys, made of parts of the path, whose rows come, change or go."""
        return frozenset(tuple(dict(file.parts)[key] for key in keys) for file in self.moved)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramesNews:
    """What a function that makes rows gives now: `total` rows, of which the first `known` were taken in before.

    `replaced`: rows that were taken in are others now, or gone.
    """

    total: int
    digest: str
    known: int = 0
    replaced: bool = False

    @property
    def cursor(self) -> FramesCursor:
        """What a table stores once it has taken in what the function gives."""
        return FramesCursor(count=self.total, digest=self.digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Messages of a partition from offset `start` up to, but not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int
    #: Its place in the order of arrival.
    arrival: int
    #: When it was first taken in; None: by this run.
    taken_ms: int | None = None
    #: How many messages it had then; None: nobody has counted them yet.
    messages: int | None = None

    @property
    def size(self) -> int:
        """How many messages there are at most: transactions and compaction leave holes."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}, offsets {self.start} to {self.end - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsNews:
    """Messages that came since a table last looked, and whether any that it needs cannot be had any more."""

    #: What a table stores once it has taken in `new`.
    cursor: TopicsCursor
    new: tuple[OffsetRange, ...] = ()
    #: Messages that went before they were taken in: topic, partition and offsets, in words.
    lost: tuple[str, ...] = ()
    #: Messages that a rebuild needs and that went since they were taken in, in words.
    gone: tuple[str, ...] = ()
    #: Messages that wait beyond `new`, for later runs.
    lag: int = 0

    @property
    def new_messages(self) -> int:
        """How many messages came, at most."""
        return sum(one.size for one in self.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationRead:
    """One read of a relation by its cursor: the rows above `after`, and those at it that came late, up to `upto`.

    `late` and `ties` are digests of rows: those at `after` that came late, and all that were taken in at `upto`.
    """

    arrival: int
    after: str
    upto: str
    taken_ms: int
    late: tuple[int, ...] = ()
    ties: tuple[int, ...] = ()


def packed(digests: Iterable[int]) -> str:
    """Digests of rows as text, in few bytes."""
    return base64.b64encode(b"".join(digest.to_bytes(8, "little") for digest in digests)).decode("ascii")


def unpacked(text: str | None) -> tuple[int, ...]:
    """The digests that `packed` wrote."""
    content = base64.b64decode(text or "")
    return tuple(int.from_bytes(content[at : at + 8], "little") for at in range(0, len(content), 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationNews:
    """What has become of a database's relation since a table last looked.

    Read whole, it has `rows` rows and is `replaced` if these are others than were taken in. Read by its cursor, `rows`
    rows lie above the last value, up to `upto`, and `late` rows have come at the last value itself.
    """

    #: What is known of earlier reads, and what a table stores where nothing is read. Reading tells the next cursor.
    cursor: RelationCursor
    rows: int = 0
    replaced: bool = False
    upto: str = ""
    late: int = 0
    #: Only reading can tell what is new: there is no way to ask the database without Spark.
    unsure: bool = False
    #: Rows came late, and which ones they are is not known.
    unclear: str = ""
    #: Whether it was looked at if everything that was taken in is still there, and what is not.
    compared: bool = False
    gone: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the relation is read whole."""
        return not self.cursor.column


News = FilesNews | FramesNews | TopicsNews | RelationNews


def digest_of(files: Iterable[LandedFile | TakenFile]) -> str:
    """A digest of what the file system shows of some files."""
    lines = sorted(f"{file.path}\t{file.size}\t{file.modified_ns}" for file in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
