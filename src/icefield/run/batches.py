"""Batches: sources that are taken in by the values of a part of their path, one run each, ascending."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icefield.declare import Files
from icefield.errors import UnknownBatch
from icefield.graph.news import FilesCursor, FilesNews
from icefield.lake.duckdb_scan import taken_files
from icefield.lake.embedded import EmbeddedLake
from icefield.plan import Plan
from icefield.run.batch import Batches, batch_of
from icefield.run.events import BatchStarted, RunResult, silent
from icefield.run.planning import plan_project, selected
from icefield.run.request import RunRequest
from icefield.run.runner import run_project

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from icefield.graph import Node
    from icefield.project import Project
    from icefield.run.events import Listener

_MONTH = re.compile(r"(\d{4})-(\d{2})")


def run_due(
    project: Project,
    order: RunRequest,
    listener: Listener = silent,
    between: Callable[[RunResult], None] = lambda result: None,
) -> RunResult:
    """Runs once or, where sources are taken in by batches, once for each batch that is due, ascending.

    It stops at the first batch that fails. Gives the last result; `between` hears of those before it.
    """
    nodes = project.graph.nodes
    if not any(batch_of(node) for node in nodes.values()):
        _refuse_range(order)
        return run_project(project, order, listener)
    values, whole = _due(project, order)
    if not values and any(order.batches):  # other batches are not to be taken in
        return RunResult(run="", status="nothing new", plan=Plan(steps=()))
    if not values:
        return run_project(project, order, listener)
    for number, value in enumerate(values, 1):
        listener(BatchStarted(batch=value, number=number, of=len(values)))
        wanted = replace(order, batch=Batches(value=value, whole=whole if number == 1 else frozenset()))
        result = run_project(project, wanted, listener)
        if not result.ok or number == len(values):
            return result
        between(result)
    raise AssertionError("unreachable")


def run_batch(project: Project, order: RunRequest, value: str, listener: Listener = silent) -> RunResult:
    """Takes in one batch, and refreshes what it or anything else has touched, by exactly one run.

    Other batches stay for later runs. Unlike `run_due` it runs also where the batch itself has been taken in already.
    """
    _require_known(project, value)
    lake = EmbeddedLake(project.profile.lake)
    states = lake.states() if lake.exists else {}
    selection = selected(project, order.select, order.exclude)
    plan = plan_project(project, lake, states, selection=selection, wishes=order.wishes, at_a_glance=True)
    _, whole = due_batches(plan, project.graph.nodes)
    return run_project(project, replace(order, batch=Batches(value=value, whole=whole)), listener)


def _due(project: Project, order: RunRequest) -> tuple[list[str], frozenset[str]]:
    lake = EmbeddedLake(project.profile.lake)
    states = lake.states() if lake.exists else {}
    selection = selected(project, order.select, order.exclude)
    plan = plan_project(project, lake, states, selection=selection, wishes=order.wishes, at_a_glance=True)
    values, whole = due_batches(plan, project.graph.nodes)
    first, last = order.batches
    if first and first == last:
        _require_known(project, first)
    return [value for value in values if (not first or value >= first) and (not last or value <= last)], whole


def _require_known(project: Project, value: str) -> None:
    known = {value for one in batch_states(project) for value in one.batches}
    if value not in known:
        raise UnknownBatch(
            f"there are no files of the batch {value}",
            where=str(project.root),
            remedy=f"batches with files: {', '.join(sorted(known)[-12:]) or 'none'}; see icefield ls --batches",
        )


def _refuse_range(order: RunRequest) -> None:
    if any(order.batches):
        raise UnknownBatch(
            "no table of this project is taken in by batches",
            where="--batch, --from, --to",
            remedy='declare the part of the path that tells them: files("landing/{month}.csv", batch="month")',
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchState:
    """The batches of one table: each with whether it is taken, new or changed, and how many files it has.

    A batch that was taken in and whose files are gone has none; if its rows are to go as well, it is changed.
    """

    table: str
    batches: Mapping[str, tuple[str, int]]

    @property
    def periodic(self) -> bool:
        """Whether the batches are months or days, so that one can be missing."""
        return any(_between(sorted(self.batches))) if self.batches else False

    @property
    def gaps(self) -> list[str]:
        """Months or days between the first and the last for which there are no files."""
        return gaps(self.batches)


def batch_states(project: Project) -> list[BatchState]:
    """All batches of all tables that are taken in so."""
    lake = EmbeddedLake(project.profile.lake)
    states = lake.states() if lake.exists else {}
    found = []
    for name in project.graph.order:
        source, state = project.graph[name].source, states.get(name)
        if isinstance(source, Files) and source.batch is not None:
            built = state is not None and state.cursor is not None
            news = _every_file(project, lake, name, source, built=built)
            found.append(BatchState(table=name, batches=_told(news, source.batch)))
    return found


def _every_file(project: Project, lake: EmbeddedLake, table: str, source: Files, *, built: bool) -> FilesNews:
    """The news of a source, each of its files compared with what was noted of it, even where nothing happened."""
    from icefield.engine.intake.files.landing import files_news  # noqa: PLC0415 - it may read files

    known = FilesCursor(count=-1, digest="") if built else None
    return files_news(project.root, source, known, lambda: taken_files(lake, table))


def _told(news: FilesNews, part: str) -> dict[str, tuple[str, int]]:
    new, changed = ({file.path for file in some} for some in (news.new, news.changed))
    told = {dict(file.parts)[part]: ("taken", 0) for file in news.missing}
    told |= {dict(file.parts)[part]: ("changed", 0) for file in news.gone}
    for file in news.landed:
        value = dict(file.parts)[part]
        before, count = told.get(value, ("taken", 0))
        state = "new" if file.path in new else "changed" if file.path in changed else "taken"
        told[value] = (state if before == "taken" else before, count + 1)
    return dict(sorted(told.items()))


def due_batches(plan: Plan, nodes: Mapping[str, Node]) -> tuple[list[str], frozenset[str]]:
    """The batches that a plan would take in, ascending, and the tables that are computed from everything anyway."""
    values: set[str] = set()
    whole = set()
    for step in plan.work:
        part = batch_of(nodes[step.table])
        if part is None or not isinstance(step.news, FilesNews):
            continue
        if step.action in ("rebuild", "refresh"):
            whole.add(step.table)
        else:
            values |= set(step.news.values(part))
    return sorted(values), frozenset(whole)


def gaps(values: Collection[str]) -> list[str]:
    """The months or days between the first and the last that are not there."""
    known = set(values)
    return [value for value in _between(sorted(known)) if value not in known] if known else []


def _between(ordered: list[str]) -> Iterator[str]:
    first, last = ordered[0], ordered[-1]
    if all(_MONTH.fullmatch(value) for value in ordered):
        year, month = (int(part) for part in first.split("-"))
        while (found := f"{year:04d}-{month:02d}") <= last:
            yield found
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    elif all(map(_is_day, ordered)):
        day, end = dt.date.fromisoformat(first), dt.date.fromisoformat(last)
        while day <= end:
            yield day.isoformat()
            day += dt.timedelta(days=1)


def _is_day(value: str) -> bool:
    try:
        return dt.date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False
