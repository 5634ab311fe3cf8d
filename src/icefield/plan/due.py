"""Why a plan has work: what waits in sources, what was published upstream, what changed in the code. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from icefield.declare import Files
from icefield.graph.news import FilesNews, TopicsNews, cursor_json
from icefield.plan.arrivals import arrivals_of
from icefield.plan.decide import newer_inputs
from icefield.words import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from icefield.graph import Graph, Node
    from icefield.graph.news import LandedFile, News, TakenFile
    from icefield.graph.state import TableState
    from icefield.plan.decide import Step
    from icefield.plan.plan import Plan

#: files: they came, changed or went. offsets: messages came to topics. rows: of another kind of source. upstream: an
#: input was published that the table has not read. code: its function, its checks, or the table itself is new.
CauseKind = Literal["files", "offsets", "rows", "upstream", "code"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One reason for a run."""

    table: str
    kind: CauseKind
    #: In words: "2 new files", "raw.trips changed".
    told: str
    #: What tells this cause from any other: the same as long as the same thing waits.
    mark: str
    #: The batch that waits, "" where its source has none.
    batch: str = ""

    def __str__(self) -> str:
        return f"{self.table}: {self.told}"


@dataclass(frozen=True, slots=True)
class Due:
    """Everything that waits for a run."""

    causes: tuple[Cause, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.causes)

    def of_kinds(self, kinds: Collection[str]) -> Due:
        """What waits for some kinds of reasons alone."""
        return Due(tuple(cause for cause in self.causes if cause.kind in kinds))

    @property
    def batches(self) -> dict[str, Due]:
        """What waits, by batch, ascending; "" is what belongs to none."""
        values = sorted({cause.batch for cause in self.causes})
        return {value: Due(tuple(cause for cause in self.causes if cause.batch == value)) for value in values}

    @property
    def digest(self) -> str:
        """The same as long as the same things wait."""
        lines = sorted(f"{cause.table}\t{cause.kind}\t{cause.mark}" for cause in self.causes)
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]

    def __str__(self) -> str:
        return "; ".join(map(str, self.causes)) or "nothing is due"


def due(plan: Plan, graph: Graph, states: Mapping[str, TableState]) -> Due:
    """Why the steps of a plan have to be carried out; steps that only follow others of the plan add nothing."""
    causes = (cause for step in plan.work for cause in _causes(step, graph[step.table], states))
    return Due(tuple(causes))


def _causes(step: Step, node: Node, states: Mapping[str, TableState]) -> Iterator[Cause]:
    if step.action == "note":
        return
    found = [] if step.news is None else list(_arrived(node, step.news))
    state = states.get(step.table)
    found += [_published(node.name, states[name]) for name in _unread(node, state, states)]
    yield from found
    if state is None:
        if step.known and not found:  # else an input is built for the first time as well, or this one has its reasons
            yield Cause(table=node.name, kind="code", told="it is not built yet", mark=node.fingerprint)
    elif (state.fingerprint, state.checks_fingerprint) != (node.fingerprint, node.checks_fingerprint):
        mark = f"{node.fingerprint} {node.checks_fingerprint}"
        yield Cause(table=node.name, kind="code", told="its code or its checks changed", mark=mark)
    elif state.meddled:
        told = "its rows were changed outside icefield"
        yield Cause(table=node.name, kind="rows", told=told, mark=str(state.version.snapshot))


def _unread(node: Node, state: TableState | None, states: Mapping[str, TableState]) -> list[str]:
    if state is None:
        return [name for name in node.inputs if name in states]
    return newer_inputs(node, state, states)


def _published(table: str, given: TableState) -> Cause:
    version = given.version
    mark = f"{given.name} {version.epoch} {version.number} {version.snapshot}"
    return Cause(table=table, kind="upstream", told=f"{given.name} changed", mark=mark)


def _arrived(node: Node, news: News) -> Iterator[Cause]:
    if not isinstance(news, FilesNews):
        arrived = arrivals_of(node, news)
        if told := "; ".join(filter(None, [arrived.came, arrived.left])):
            kind: CauseKind = "offsets" if isinstance(news, TopicsNews) else "rows"
            yield Cause(table=node.name, kind=kind, told=told, mark=cursor_json(news.cursor))
        return
    part = node.source.batch if isinstance(node.source, Files) else None
    for value in news.values(part) if part is not None else [""]:
        chosen = news if part is None else news.only(part, value)
        if chosen.moved:
            yield Cause(table=node.name, kind="files", told=_files(chosen), mark=_mark(chosen.moved), batch=value)


def _files(news: FilesNews) -> str:
    counts = {"new": news.new, "changed": news.changed, "deleted": news.gone}
    return ", ".join(plural(len(some), f"{what} file") for what, some in counts.items() if some)


def _mark(files: Iterable[LandedFile | TakenFile]) -> str:
    return "\n".join(sorted(f"{file.path} {file.size} {file.modified_ns}" for file in files))
