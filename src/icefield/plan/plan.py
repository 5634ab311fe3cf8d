"""The plan of a whole run: a step for each selected table, in an order in which they can be carried out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icefield.declare import Append
from icefield.errors import IcefieldError, PlanRefused
from icefield.graph import owner_of
from icefield.graph.state import EMPTY
from icefield.plan.columns import refuse_changed_columns
from icefield.plan.decide import Step, Wishes, decide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from icefield.graph import Graph, Node
    from icefield.graph.news import News
    from icefield.graph.state import TableState
    from icefield.plan.decide import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run would do."""

    steps: tuple[Step, ...]
    undeclared: tuple[str, ...] = ()

    @property
    def work(self) -> tuple[Step, ...]:
        """The steps that do something."""
        return tuple(step for step in self.steps if step.action not in ("none", "refused"))

    @property
    def problems(self) -> tuple[IcefieldError, ...]:
        """Why the plan cannot be carried out."""
        return tuple(step.problem for step in self.steps if step.problem is not None)

    def require_possible(self) -> None:
        """Refuses a plan that cannot be carried out, with all that is wrong with it."""
        if len(self.problems) == 1:
            raise self.problems[0]
        if self.problems:
            raise PlanRefused(self.problems)

    def step(self, table: str) -> Step | None:
        """The step of one table."""
        return next((step for step in self.steps if step.table == table), None)


def make_plan(
    graph: Graph,
    states: Mapping[str, TableState],
    news: Mapping[str, News],
    selection: Sequence[str],
    wishes: Wishes,
    problems: Mapping[str, IcefieldError] | None = None,
) -> Plan:
    """Decides each selected table in turn; where an input changes in this very run, the step is decided then.

    `problems` are those of sources that could not be looked at.
    """
    steps: dict[str, Step] = {}
    for name in graph.order:
        if name in selection and problems is not None and name in problems:
            steps[name] = refused(name, problems[name])
        elif name in selection:
            steps[name] = _step(graph[name], states, news.get(name), steps, wishes)
    undeclared = [name for name in states if name not in graph and not graph.keeps(name)]
    return Plan(steps=tuple(steps.values()), undeclared=tuple(sorted(undeclared)))


def _step(
    node: Node, states: Mapping[str, TableState], news: News | None, steps: Mapping[str, Step], wishes: Wishes
) -> Step:
    stopped = [name for name in node.needs if name in steps and steps[name].action == "refused"]
    if stopped:
        return Step(table=node.name, action="none", reason=f"waiting for {', '.join(stopped)}", news=news)
    try:
        step = _possible(node, states, news, steps, wishes)
        if step.action not in ("none", "build") and node.name in states and not wishes.full_refresh:
            refuse_changed_columns(node, states[node.name])
    except IcefieldError as problem:
        return refused(node.name, problem)
    return step


def refused(table: str, problem: IcefieldError) -> Step:
    """A step that cannot be carried out."""
    return Step(table=table, action="refused", reason=problem.what, problem=problem)


def _possible(
    node: Node, states: Mapping[str, TableState], news: News | None, steps: Mapping[str, Step], wishes: Wishes
) -> Step:
    known = with_quarantines(node, states)
    pending = [name for name in node.needs if name in steps and steps[name].action not in ("none", "note")]
    absent = [name for name in node.needs if name not in states and name not in pending]
    if absent:
        told = f"waiting for {', '.join(absent)} (never built and not selected)"
        return Step(table=node.name, action="none", reason=told, news=news)
    if not pending:
        return decide(node, states.get(node.name), known, news, wishes)
    state = states.get(node.name)
    if state is None:
        return Step(table=node.name, action="build", reason="first run", known=False, news=news)
    if wishes.full_refresh:
        return Step(table=node.name, action="rebuild", reason="--full-refresh", known=False, news=news)
    if all(name in states for name in pending):
        settled = decide(node, state, known, news, wishes)
        if settled.action == "rebuild":
            return Step(table=node.name, action="rebuild", reason=settled.reason, known=False, news=news)
    reason = f"changes in {', '.join(pending)}"
    return Step(table=node.name, action=_expected(node, pending, steps), reason=reason, known=False, news=news)


def with_quarantines(node: Node, states: Mapping[str, TableState]) -> Mapping[str, TableState]:
    """The states of tables, with those quarantines that a table reads and that no row was ever sent to."""
    empty = {name: EMPTY for name in node.inputs if name not in states and owner_of(name) != name}
    return {**states, **{name: replace(state, name=name) for name, state in empty.items()}}


def _expected(node: Node, pending: list[str], steps: Mapping[str, Step]) -> Action:
    """What will most likely come of it, once the inputs that change in this run have changed."""
    actions = {steps[name].action for name in pending}
    if node.keys:
        return "rebuild" if actions & {"rebuild", "build"} else "update"
    if not isinstance(node.refresh, Append):
        return "refresh"
    if actions & {"rebuild", "refresh"}:
        return "rebuild"
    return "update" if "update" in actions else "append"
