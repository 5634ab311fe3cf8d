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
from icefield.run.planning import plan_project, with_sources_as_read
from icefield.run.request import RunRequest
from icefield.run.staging import Staging
from icefield.run.starting import Start
from icefield.run.state import RunContext, RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
    """Recomputes each table from its inputs at the versions it has consumed, and compares.

    `deep`: from the files that its sources have taken in.
    """

    def heard(event: Event) -> None:
        if isinstance(event, TableStarted):
            listener(f"{event.table}, from the sources")

    context = RunContext.of(project, RunRequest(full_refresh=deep, once=True), heard)
    if not context.lake.exists:
        raise NoLake(context.lake.root)
    require_reachable_lake(project.profile)
    context.lake.require_in_place()
    states = context.lake.states()
    plan = _plan(context, states, selection)
    context = replace(context, project=with_sources_as_read(project, plan))
    return _verdicts(RunState(context, states=states, published=dict(states)), plan, selection, listener)


def _plan(context: RunContext, states: Mapping[str, TableState], selection: Sequence[str]) -> Plan:
    """What is staged to compare with: nothing, or with --deep everything upstream."""
    if not context.order.full_refresh:
        return Plan(steps=())
    graph = context.project.graph
    wanted = {*selection, *graph.upstream(selection)}
    built = tuple(name for name in graph.order if name in wanted and name in states)
    plan = plan_project(context.project, context.lake, states, selection=built, wishes=Wishes(full_refresh=True))
    return replace(plan, steps=tuple(_of_taken_files(step) for step in plan.steps))


def _verdicts(state: RunState, plan: Plan, selection: Sequence[str], listener: Callable[[str], None]) -> list[Verdict]:
    """Computes on a branch of its own, which is abandoned: nothing is audited or published."""
    from icefield.engine.session.spark import cores  # noqa: PLC0415 - pyspark

    context = state.context
    branch = Branch(context.lake, _names.take(context.lake.root), context.run)
    try:
        with ThreadPoolExecutor(cores(), thread_name_prefix="reader") as readers:
            start = Start.of(context, state.states, also=selection)
            stage = start.carry_out(branch, plan, readers).stage
            Staging(state, stage).carry_out(plan)
        idle = {step.table: step for step in plan.steps if step.action in ("none", "refused")}
        return [
            _not_computed(idle[table]) if table in idle else _verdict(state, stage, table, listener)
            for table in selection
        ]
    finally:
        branch.abandon()
        _names.give_back(context.lake.root, branch.name)


def _verdict(run: RunState, stage: Stage, table: str, listener: Callable[[str], None]) -> Verdict:
    from icefield.engine.verify import compared, recomputed  # noqa: PLC0415 - pyspark

    node, state = run.context.project.graph[table], run.published.get(table)
    if state is None:
        return Verdict(table=table, status="not compared", detail="it was never built")
    if state.fingerprint != node.fingerprint:
        return Verdict(table=table, status="not compared", detail="its code changed: run `icefield run` first")
    listener(table)
    if run.context.order.full_refresh:
        return compared(stage, node, state, stage.tables.read(table, run.states[table].version.snapshot))
    if node.source is not None:
        return Verdict(table=table, status="not compared", detail="only --deep reads its files again")
    gone = [name for name, version in state.inputs.items() if not _is_there(stage, name, version.snapshot)]
    if gone:
        detail = f"the version of {', '.join(gone)} that it read has expired"
        return Verdict(table=table, status="not compared", detail=detail)
    return compared(stage, node, state, recomputed(stage, node, state))


def _not_computed(step: Step) -> Verdict:
    """The verdict on a table that cannot be recomputed because what it was made from is gone."""
    return Verdict(table=step.table, status="not compared", detail=step.reason)


def _of_taken_files(step: Step) -> Step:
    """The step without what no run has taken in yet."""
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
