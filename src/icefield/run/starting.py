"""The start of a run: Spark, the functions and PyIceberg come up side by side, and files are read meanwhile."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from icefield.declare import Topics
from icefield.graph import owner_of
from icefield.interrupt import stop_if_asked
from icefield.lake.duckdb_scan import taken_ranges, taken_reads
from icefield.project import load_functions
from icefield.run.events import PhaseStarted
from icefield.run.planning import broker_settings, rows_at_stake
from icefield.run.relations import connections, drivers
from icefield.run.replaying import Replaying, decided_before
from icefield.run.schedule import Later
from icefield.run.warm import analysed, code_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path

    from icefield.engine.intake.port import Intake, Intakes, Received
    from icefield.engine.promises.rules import Proof
    from icefield.engine.refresh.stage import Stage
    from icefield.engine.session.jars import Jar
    from icefield.engine.session.jvm import Effort
    from icefield.engine.tables import Tables
    from icefield.graph.state import TableState
    from icefield.lake.branch import Branch
    from icefield.lake.embedded import EmbeddedLake
    from icefield.plan import Plan
    from icefield.project import Functions, Project
    from icefield.run.events import Listener, Phase
    from icefield.run.request import RunRequest
    from icefield.run.state import RunContext

#: Runs over fewer rows are over before Java's optimising compiler would pay, at all or for the code of a single query.
FEW_ROWS, SOME_ROWS = 500_000, 6_000_000


@dataclass(frozen=True, slots=True)
class Started:
    """What a run works with."""

    stage: Stage
    replaying: Replaying


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a run starts from."""

    project: Project
    lake: EmbeddedLake
    order: RunRequest
    states: Mapping[str, TableState]
    started_ms: int
    listener: Listener
    #: Tables that are computed beside the plan.
    also: Collection[str] = ()

    @classmethod
    def of(cls, context: RunContext, states: Mapping[str, TableState], also: Collection[str] = ()) -> Start:
        """The start of a run."""
        return cls(
            project=context.project,
            lake=context.lake,
            order=context.order,
            states=states,
            started_ms=context.started_ms,
            listener=context.listener,
            also=also,
        )

    def carry_out(self, branch: Branch, plan: Plan, readers: ThreadPoolExecutor) -> Started:
        """Brings everything up; the files of the plan are read by `readers` from now on."""
        from icefield.engine.session.spark import add_catalog, import_pyspark, start_session  # noqa: PLC0415 - real runs only

        folder = self.lake.run_folder(branch.run)
        folder.mkdir(parents=True, exist_ok=True)
        name, conf, effort = f"icefield {self.project.name}", self.project.profile.spark, self._effort(plan)
        log, fetching, more = folder / "spark.log", _Fetching(self.listener), drivers(self.project)
        scope = str(self.lake.root)
        session = Later(
            lambda: start_session(
                app=name, conf=conf, log=log, progress=fetching, effort=effort, drivers=more, scope=scope
            )
        )

        # Imported while the JVM starts: pyarrow, then pyspark, which take longer than anything else of ours.
        scratch = self.lake.scratch_folder(branch.run)
        intakes = self._intakes(scratch, conf, readers)
        received = self._begin_reading(intakes, plan)
        stop_if_asked()
        import_pyspark()
        stop_if_asked()

        from icefield.engine.tables import Tables  # noqa: PLC0415

        Later(lambda: importlib.import_module("pyiceberg.catalog.sql"))
        functions = load_functions(self.project)
        spark = session.result()
        add_catalog(spark, branch.name, uri=str(self.lake.catalog.path), warehouse=str(self.lake.warehouse))
        tables = Tables(spark, branch, self.project.graph)
        return self._prepare(tables, plan, functions, intakes, scratch, received)

    def _prepare(
        self,
        tables: Tables,
        plan: Plan,
        functions: Functions,
        intakes: Intakes,
        scratch: Path,
        received: Mapping[str, Later[Received | None]],
    ) -> Started:
        from icefield.engine.promises.analyse import Analysis, require_repair  # noqa: PLC0415
        from icefield.engine.promises.group_keys import checking_groups  # noqa: PLC0415
        from icefield.engine.refresh.stage import Stage  # noqa: PLC0415

        graph = self.project.graph
        analysis = Analysis(
            spark=tables.spark,
            root=self.project.root,
            graph=graph,
            functions=functions,
            finishes=functions.finishes,
            stored=lambda name: tables.before(name).schema,
            settled=self._settled(),
            lineage=self.order.column_lineage,
        )
        about = {step.table for step in plan.work} | set(self.also)
        zone, lineage = self.project.profile.spark.get("spark.sql.session.timeZone"), self.order.column_lineage
        key = (self.project.root, zone, lineage, code_of(graph, about, self.states))
        derived = analysed(key, lambda: analysis.derive(about))
        tables.empty.update({name: kind for name, kind in derived.schemas.items() if owner_of(name) != name})
        for repair in self.order.repairs:
            require_repair(tables.spark, graph[repair.table], derived.schemas, repair)
        replaying = Replaying(decided=decided_before(self.lake, self.states, {one.table for one in self.order.repairs}))
        replaying.find(self.order.replays, tables, graph, derived, scratch)
        stage = Stage(
            tables=tables,
            root=self.project.root,
            functions={name: checking_groups(function) for name, function in functions.items()},
            finishes=functions.finishes,
            schemas=derived.schemas,
            measures=derived.measures,
            apart=frozenset(derived.apart),
            promises=derived.promises,
            lineage=derived.lineage,
            followed=graph.followers(),
            started_ms=self.started_ms,
            intakes=intakes,
            scratch_folder=scratch,
            received=received,
            decided=replaying.decided,
            replayed=frozenset(replay.table for replay in self.order.replays),
            remake=self.order.full_refresh,
        )
        return Started(stage, replaying)

    def _settled(self) -> dict[str, Proof]:
        """Tables whose promise was proven, or is still vouched for, for the code as it is."""
        found: dict[str, Proof] = {}
        for name, state in self.states.items():
            node = self.project.graph.nodes.get(name)
            if node is None or state.fingerprint != node.fingerprint:
                continue
            if state.promise == "proven":
                found[name] = "proven"
            elif state.promise in ("trusted", "untried") and getattr(node.refresh, "trusted", False):
                found[name] = "trusted"
        return found

    def _effort(self, plan: Plan) -> Effort:
        rows = rows_at_stake(plan, self.states)
        if not self.order.once or rows >= SOME_ROWS:
            return "full"
        return "least" if rows < FEW_ROWS else "less"

    def _intakes(self, scratch: Path, conf: Mapping[str, str], readers: ThreadPoolExecutor) -> Intakes:
        from icefield.engine.intake.files.intake import FilesIntake  # noqa: PLC0415 - pyarrow
        from icefield.engine.intake.frames import FramesIntake  # noqa: PLC0415
        from icefield.engine.intake.port import Intakes, Surroundings  # noqa: PLC0415
        from icefield.engine.intake.relations.intake import RelationsIntake  # noqa: PLC0415
        from icefield.engine.intake.topics.intake import TopicsIntake  # noqa: PLC0415
        from icefield.engine.limits import LIMITS, is_local  # noqa: PLC0415

        local = is_local(conf.get("spark.master", "local"))
        around = Surroundings(
            root=self.project.root,
            started_ms=self.started_ms,
            zone=conf.get("spark.sql.session.timeZone", "UTC"),
            scratch=scratch,
            pool=readers,
            workers_see=self.project.profile.workers_see,
            driver_bytes=LIMITS.driver_bytes if local else -1,
            split_bytes=LIMITS.split_bytes,
            driver_messages=LIMITS.driver_messages,
            driver_message_bytes=LIMITS.driver_message_bytes,
            split_messages=LIMITS.split_messages,
            local_rows=LIMITS.local_rows,
            local_bytes=LIMITS.local_bytes,
            functions=lambda: load_functions(self.project).frames,
        )
        relations = RelationsIntake(
            around,
            connections(self.project.profile, self.project.root),
            self.project.profile.name,
            lambda table, cursor: taken_reads(self.lake, table, cursor.first, cursor.arrivals - 1),
        )
        found: dict[str, Intake] = {"files": FilesIntake(around), "frames": FramesIntake(around), "jdbc": relations}
        if any(isinstance(node.source, Topics) for node in self.project.graph.nodes.values()):
            settings = broker_settings(self.project.profile)
            topics = TopicsIntake(around, settings, lambda table: taken_ranges(self.lake, table))
            found |= {"kafka": topics, "debezium": topics}
        return Intakes(found)

    def _begin_reading(self, intakes: Intakes, plan: Plan) -> dict[str, Later[Received | None]]:
        graph = self.project.graph
        known = [step for step in plan.work if step.known and graph[step.table].source is not None]
        return {step.table: Later(partial(intakes.receive, graph[step.table], step)) for step in known}


@dataclass(slots=True)
class _Fetching:
    """Tells of the first start, when jars have to be fetched."""

    listener: Listener
    told: Phase = "start"

    def __call__(self, _jar: Jar, done: int, total: int) -> None:
        phase: Phase = "start" if done >= total else "fetch"
        if self.told != phase:
            self.told = phase
            self.listener(PhaseStarted(phase=phase))
