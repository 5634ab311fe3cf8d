"""What a plan asks of databases: where they are, what has come to relations, whether what was read is still there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from icefield.graph.news import RelationCursor
from icefield.lake.duckdb_scan import next_read, taken_reads

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from icefield.declare import Jdbc
    from icefield.engine.intake.relations.connection import Connection
    from icefield.engine.intake.relations.news import Memory
    from icefield.engine.session.jars import Jar
    from icefield.graph import Node
    from icefield.graph.news import Cursor, RelationNews
    from icefield.lake.embedded import EmbeddedLake
    from icefield.project import Project
    from icefield.project.config import Profile


def connections(profile: Profile, root: Path) -> tuple[Connection, ...]:
    """The databases that a profile names."""
    from icefield.engine.intake.relations.connection import Connection  # noqa: PLC0415 - where there are some

    return tuple(
        Connection(
            name=name,
            profile=profile.name,
            root=root,
            url=database.url,
            user=database.user,
            password=database.password,
            driver=database.driver,
            jars=database.jars,
        )
        for name, database in sorted(profile.jdbc.items())
    )


def drivers(project: Project) -> tuple[Jar | Path, ...]:
    """The jars of the databases from which tables of a project are read."""
    from icefield.declare import Jdbc  # noqa: PLC0415 - where there are some

    used = {node.source.connection for node in project.graph.nodes.values() if isinstance(node.source, Jdbc)}
    known = connections(project.profile, project.root) if used else ()
    return tuple(dict.fromkeys(jar for one in known if one.name in used for jar in one.needed))


@dataclass(frozen=True, slots=True, kw_only=True)
class Relations:
    """The databases of a project, for one plan."""

    project: Project
    lake: EmbeddedLake
    #: Tables whose quarantine is replayed: what has come meanwhile is for another run.
    replayed: Collection[str]
    #: Tables that are to be built anew from what their databases have now, whatever that is.
    anew: Collection[str]

    def news(self, node: Node, source: Jdbc, cursor: Cursor | None) -> RelationNews:
        """What has come to the relation of a table."""
        from icefield.engine.intake.relations.clients import open_client  # noqa: PLC0415 - where there are some
        from icefield.engine.intake.relations.news import relation_news, unsure_news  # noqa: PLC0415

        connection = self._connection(node, source)
        is_known = isinstance(cursor, RelationCursor) and node.name not in self.anew
        known = cursor if is_known and isinstance(cursor, RelationCursor) else None
        memory = self._memory(node)
        if connection.kind == "other":
            news = unsure_news(source, known, memory)
        else:
            zone = self.project.profile.spark.get("spark.sql.session.timeZone", "UTC")
            quiet = node.name in self.replayed
            with open_client(connection) as client:
                news = relation_news(source, client, known, memory, _where(node), zone=zone, quiet=quiet)
        return replace(news, compared=known is None or not known.follows or news.unsure)

    def compared(self, node: Node, source: Jdbc, cursor: Cursor | None, news: RelationNews) -> RelationNews:
        """The news, with what a rebuild would miss."""
        from icefield.engine.intake.relations.clients import open_client  # noqa: PLC0415
        from icefield.engine.intake.relations.news import compared  # noqa: PLC0415

        assert isinstance(cursor, RelationCursor)
        with open_client(self._connection(node, source)) as client:
            return compared(source, client, cursor, self._memory(node), news)

    def _connection(self, node: Node, source: Jdbc) -> Connection:
        from icefield.engine.intake.relations.connection import named  # noqa: PLC0415

        known = connections(self.project.profile, self.project.root)
        found = named(known, source.connection, self.project.profile.name, node.name)
        _ = found.needed  # a driver that is missing is told now, not when Spark has started
        return found

    def _memory(self, node: Node) -> Memory:
        from icefield.engine.intake.relations.news import Memory  # noqa: PLC0415

        return Memory(
            next_arrival=lambda: next_read(self.lake, node.name),
            ties=lambda cursor: last_ties(self.lake, node.name, cursor),
        )


def last_ties(lake: EmbeddedLake, table: str, cursor: RelationCursor) -> Sequence[int]:
    """The digests of the rows that a table took in with the last value of its cursor."""
    last = cursor.arrivals - 1
    return next((read.ties for read in taken_reads(lake, table, last, last)), ())


def _where(node: Node) -> str:
    return f"{node.name}, {node.location}"
