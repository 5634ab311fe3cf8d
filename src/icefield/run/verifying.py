"""Recomputes tables aside and compares them with what is published; nothing is published, nothing is changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from icefield.engine.verdict import Verdict
from icefield.errors import NoLake
from icefield.graph.news import FramesNews, RelationNews, TopicsNews
from icefield.lake.branch import Branch, BranchNames
from icefield.lake.embedded import RECORDER
from icefield.plan import Plan, Step, Wishes
from icefield.project.config import require_reachable_lake
from icefield.run.events import TableStarted
from icefield.run.planning import plan_project
from icefield.run.request import RunRequest
from icefield.run.runner import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from icefield.engine.refresh.stage import Stage
    from icefield.graph.state import TableState
    from icefield.project import Project
    from icefield.run.events import Event

_names = BranchNames(RECORDER)


def verify_project(
    project: Project,
    selection: Sequence[str],
    *,
    deep: bool = False,
    listener: Callable[[str], None] = lambda table: None,
) -> list[Verdict]:
    """Whether each table is what its function gives for its inputs at the versions it says it has consumed.

    `deep`: for the files that its sources have taken in, all the way from there.
    """

    def heard(event: Event) -> None:
        if isinstance(event, TableStarted):
            listener(f"{event.table}, from the sources")

    return _Verification(project, RunRequest(full_refresh=deep, once=True), heard).verify(selection, listener)


class _Verification(Run):
    """A run that ends before it publishes."""

    def verify(self, selection: Sequence[str], listener: Callable[[str], None]) -> list[Verdict]:
        from icefield.engine.session.spark import cores  # noqa: PLC0415 - pyspark

        if not self.lake.exists:
            raise NoLake(self.lake.root)
        require_reachable_lake(self.project.profile)
        self.lake.require_in_place()
        self.states = self.lake.states()
        published = dict(self.states)
        plan = self._plan(selection)
        branch = Branch(self.lake, _names.take(self.lake.root), self.run)
        try:
            with ThreadPoolExecutor(cores(), thread_name_prefix="reader") as readers:
                stage = self._start(branch, plan, readers, also=selection)
                self._stage(stage, plan)
            idle = {step.table: step for step in plan.steps if step.action in ("none", "refused")}
            return [
                _not_computed(idle[table]) if table in idle else self._verdict(stage, table, published, listener)
                for table in selection
            ]
        finally:
            branch.abandon()
            _names.give_back(self.lake.root, branch.name)

    def _plan(self, selection: Sequence[str]) -> Plan:
        if not self.order.full_refresh:
            return Plan(steps=())
        graph = self.project.graph
        wanted = {*selection, *graph.upstream(selection)}
        built = tuple(name for name in graph.order if name in wanted and name in self.states)
        plan = plan_project(self.project, self.lake, self.states, selection=built, wishes=Wishes(full_refresh=True))
        return replace(plan, steps=tuple(_of_taken_files(step) for step in plan.steps))

    def _verdict(
        self, stage: Stage, table: str, published: dict[str, TableState], listener: Callable[[str], None]
    ) -> Verdict:
        from icefield.engine.verify import compared, recomputed  # noqa: PLC0415 - pyspark

        node, state = self.project.graph[table], published.get(table)
        if state is None:
            return Verdict(table=table, status="not compared", detail="it was never built")
        if state.fingerprint != node.fingerprint:
            return Verdict(table=table, status="not compared", detail="its code changed: run `icefield run` first")
        listener(table)
        if self.order.full_refresh:
            return compared(stage, node, state, stage.tables.read(table, self.states[table].version.snapshot))
        if node.source is not None:
            return Verdict(table=table, status="not compared", detail="only --deep reads its files again")
        gone = [name for name, version in state.inputs.items() if not _is_there(stage, name, version.snapshot)]
        if gone:
            told = f"the version of {', '.join(gone)} that it read has expired"
            return Verdict(table=table, status="not compared", detail=told)
        return compared(stage, node, state, recomputed(stage, node, state))


def _not_computed(step: Step) -> Verdict:
    """What is said of a table that could not be computed again: what it was made from is no longer there."""
    return Verdict(table=step.table, status="not compared", detail=step.reason)


def _of_taken_files(step: Step) -> Step:
    """The step without the files that no run has taken in yet."""
    news = step.news
    if isinstance(news, FramesNews):
        return step if news.replaced else replace(step, news=replace(news, total=news.known))
    if news is None:
        return step
    if isinstance(news, TopicsNews):
        return replace(step, news=replace(news, new=()))
    if isinstance(news, RelationNews):
        before = replace(news, rows=0, late=0, upto=news.cursor.value, unsure=False)
        return step if news.is_whole else replace(step, news=before)
    landed = tuple(file for file in news.landed if file not in news.new)
    return replace(step, news=replace(news, landed=landed, new=()))


def _is_there(stage: Stage, table: str, snapshot: int | None) -> bool:
    metadata = stage.tables.branch.base_metadata(table)
    known = [] if metadata is None else [entry["snapshot-id"] for entry in metadata.get("snapshots", [])]
    return snapshot is None or snapshot in known
