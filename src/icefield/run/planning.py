"""Gathers what the pure planner needs: the lake's state from metadata, and what lies in the landing folders."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icefield.declare import Files, Frames, Jdbc, Topics
from icefield.errors import IcefieldError, NoTables, SourceError
from icefield.graph import select
from icefield.graph.news import FilesCursor, FilesNews, FramesCursor, RelationNews, TopicsCursor, TopicsNews
from icefield.lake.duckdb_scan import changed_rows, next_arrival, taken_files
from icefield.lake.embedded import EmbeddedLake
from icefield.plan import Plan, Step, Wishes, due, make_plan
from icefield.run.relations import Relations

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from icefield.declare import Source
    from icefield.engine.intake.topics.broker import Settings
    from icefield.graph import Node
    from icefield.graph.news import Cursor, News
    from icefield.graph.state import TableState
    from icefield.plan import Due
    from icefield.project import Project
    from icefield.project.config import Profile
    from icefield.run.batch import Batches


#: How long a line of a file is, more or less.
_LINE_BYTES = 80


def plan_project(
    project: Project,
    lake: EmbeddedLake,
    states: Mapping[str, TableState],
    *,
    selection: tuple[str, ...],
    wishes: Wishes,
    foresee: bool = False,
    batch: Batches | None = None,
    at_a_glance: bool = False,
    max_rows: int | None = None,
) -> Plan:
    """What a run of these tables would do now; `batch`: taking in one batch alone.

    `at_a_glance`: no file is looked into. `foresee`: files that would be read are looked into, so that a wrong header
    is told before a run meets it. `max_rows`: at most so many messages of each source of topics.
    """
    found = _News(project, lake, states, batch, wishes, max_rows, at_a_glance=at_a_glance)
    plan = make_plan(project.graph, states, found.of(selection), selection, wishes, found.problems)
    # The order of arrival is data, and a rebuild keeps it; it is only read where something is to be done.
    if remembered := [step.table for step in plan.work if step.table in states and _lacks_history(step)]:
        found.look_closer(remembered)
        plan = make_plan(project.graph, states, found.of(selection), selection, wishes, found.problems)
    if foresee:
        plan = replace(plan, steps=tuple(_foreseen(project, step) for step in plan.steps))
    return _counted(plan, lake)


class _News:
    """What the sources of a project have that its tables have not taken in; `batch`: of one batch alone."""

    def __init__(
        self,
        project: Project,
        lake: EmbeddedLake,
        states: Mapping[str, TableState],
        batch: Batches | None,
        wishes: Wishes,
        max_rows: int | None,
        *,
        at_a_glance: bool,
    ) -> None:
        self._project = project
        self._lake = lake
        self._states = states
        self._batch = batch
        self._replayed = wishes.replay
        anew = wishes.accept if wishes.full_refresh else frozenset()
        self._relations = Relations(project=project, lake=lake, replayed=wishes.replay, anew=anew)
        self._max_rows = max_rows
        self._at_a_glance = at_a_glance
        self._found: dict[str, News] = {}
        self._functions: Mapping[str, Callable[[], Any]] | None = None
        self.problems: dict[str, IcefieldError] = {}

    def of(self, tables: Sequence[str]) -> dict[str, News]:
        """The news of these tables' sources; what cannot be looked at is among the problems."""
        for name in tables:
            if name in self._found or name in self.problems or self._project.graph[name].source is None:
                continue
            state = self._states.get(name)
            try:
                self._found[name] = self._look(name, state.cursor if state is not None else None)
            except SourceError as problem:
                self.problems[name] = problem
        return {name: self._found[name] for name in tables if name in self._found}

    def look_closer(self, tables: Sequence[str]) -> None:
        """Reads what was noted of files, even where nothing seems to have happened to them.

        Asks databases whether they still have what was taken in.
        """
        for name in tables:
            known, source, news = self._states[name].cursor, self._project.graph[name].source, self._found[name]
            if isinstance(source, Jdbc) and isinstance(news, RelationNews):
                self._found[name] = self._relations.compared(self._project.graph[name], source, known, news)
                continue
            columns = known.columns if isinstance(known, FilesCursor) else ()
            self._found[name] = self._look(name, FilesCursor(count=-1, digest="", columns=columns))

    def _look(self, name: str, cursor: Cursor | None) -> News:
        node = self._project.graph[name]
        if isinstance(node.source, Frames):
            from icefield.engine.intake.frames import frames_news  # noqa: PLC0415 - where there are some

            known = cursor if isinstance(cursor, FramesCursor) else None
            return frames_news(node, self._made()[name], known)
        if isinstance(node.source, Topics):
            return self._look_at_topics(node, node.source, cursor if isinstance(cursor, TopicsCursor) else None)
        if isinstance(node.source, Jdbc):
            return self._relations.news(node, node.source, cursor)
        assert isinstance(node.source, Files)
        from icefield.engine.intake.files.landing import files_news, with_new_columns  # noqa: PLC0415 - reads files

        files = cursor if isinstance(cursor, FilesCursor) else None
        news = files_news(self._project.root, node.source, files, lambda: taken_files(self._lake, name))
        if self._batch is not None:
            news = self._batch.within(node, news)
        return news if self._at_a_glance else with_new_columns(self._project.root, node.source, news)

    def _look_at_topics(self, node: Node, source: Topics, known: TopicsCursor | None) -> TopicsNews:
        from icefield.engine.intake.topics.broker import open_broker  # noqa: PLC0415 - where there are some
        from icefield.engine.intake.topics.news import topics_news  # noqa: PLC0415

        # A replay looks at rows that wait; messages that come meanwhile are for the next run.
        at_most = 0 if node.name in self._replayed else self._max_rows
        broker = open_broker(broker_settings(self._project.profile))
        first = next_arrival(self._lake, node.name) if known is None else 0
        return topics_news(source, broker, known, f"{node.name}, {node.location}", at_most, first)

    def _made(self) -> Mapping[str, Callable[[], Any]]:
        """The functions that make rows: the author's code has to be imported for them."""
        if self._functions is None:
            from icefield.project import load_functions  # noqa: PLC0415 - where there are some

            self._functions = load_functions(self._project).frames
        return self._functions


def broker_settings(profile: Profile) -> Settings:
    """Where the topics of a profile are."""
    from icefield.engine.intake.topics.broker import Settings  # noqa: PLC0415 - where there are some

    kafka = profile.kafka
    kafka.require_settings()
    return Settings(
        brokers=kafka.brokers,
        options=tuple(sorted(kafka.options.items())),
        recording=kafka.recording,
        profile=profile.name,
    )


def with_added(source: Files, news: FilesNews) -> Files:
    """A source with the undeclared columns that its table has, and those that its new files bring along."""
    added = (*news.columns, *news.added)
    return replace(source, schema=(*source.schema, *added)) if added else source


def with_sources_as_read(project: Project, plan: Plan) -> Project:
    """The project with sources that hand over the undeclared columns which their files brought along."""
    found: dict[str, Source] = {}
    for step in plan.steps:
        source = project.graph[step.table].source
        if isinstance(source, Files) and isinstance(step.news, FilesNews) and (step.news.columns or step.news.added):
            found[step.table] = with_added(source, step.news)
    return replace(project, graph=project.graph.with_sources(found)) if found else project


def _foreseen(project: Project, step: Step) -> Step:
    """The step, or why a run would refuse it once it looked into the files."""
    source, news = project.graph[step.table].source, step.news
    if not isinstance(news, FilesNews) or not isinstance(source, Files) or step.action in ("none", "note", "refused"):
        return step
    from icefield.engine.intake.files.heads import read_head  # noqa: PLC0415 - it reads files

    files = news.new if step.action in ("append", "update") else news.landed
    for file in files[-_LOOKED_INTO:]:
        try:
            read_head(project.root, file, with_added(source, news))
        except IcefieldError as problem:
            return replace(step, action="refused", reason=problem.what, problem=problem)
    return step


#: Of so many files, the last ones, the first line is looked at before a run.
_LOOKED_INTO = 200


def _counted(plan: Plan, lake: EmbeddedLake) -> Plan:
    """The plan with how many rows changed in each input, for steps that follow changes that are published."""
    return replace(plan, steps=tuple(_with_counts(step, lake) for step in plan.steps))


def _with_counts(step: Step, lake: EmbeddedLake) -> Step:
    if step.action not in ("append", "update"):
        return step
    counts = {name: changed_rows(lake, name, wanted) for name, wanted in step.ranges.items() if wanted.changed}
    return replace(step, changed=counts)


def rows_at_stake(plan: Plan, states: Mapping[str, TableState]) -> int:
    """Roughly how many rows the work of a plan reads, as far as that is known before."""
    return sum(_rows_read(step, states) for step in plan.work)


def _rows_read(step: Step, states: Mapping[str, TableState]) -> int:
    landed = 0
    if isinstance(step.news, FilesNews):
        files = step.news.landed if step.action in ("build", "rebuild", "refresh") else step.news.new
        landed = sum(file.size for file in files) // _LINE_BYTES
    elif isinstance(step.news, TopicsNews):
        landed = step.news.new_messages
    elif isinstance(step.news, RelationNews):
        landed = step.news.rows + (step.news.cursor.count if step.action == "rebuild" else 0)
    if step.action in ("append", "update"):  # new rows only, but their keys are looked for among all
        return landed + sum(step.changed.values()) + (states[step.table].rows if step.table in states else 0) // 10
    return landed + sum(states[name].rows for name in step.ranges if name in states)


def _lacks_history(step: Step) -> bool:
    """Even where no file is there: a rebuild must know what it lacks."""
    if isinstance(step.news, RelationNews):
        return step.action == "rebuild" and not step.news.compared
    return isinstance(step.news, FilesNews) and not step.news.taken


def look_for_due(project: Project, selection: tuple[str, ...]) -> Due:
    """What waits for a run of these tables, and why; found without Spark, and without looking into a file."""
    lake = EmbeddedLake(project.profile.lake)
    lake.require_in_place()
    states = lake.states()
    plan = plan_project(project, lake, states, selection=selection, wishes=Wishes(), at_a_glance=True)
    plan.require_possible()
    return due(plan, project.graph, states)


def selected(project: Project, select_text: str = "", exclude: str = "") -> tuple[str, ...]:
    """The tables that a selection names; without one, all."""
    if not len(project.graph):
        raise NoTables(
            "the project declares no tables",
            where=str(project.root),
            remedy="put @table(...) above a function in one of the files listed under `tables` in icefield.toml",
        )
    return select(project.graph, select_text, exclude=exclude)
