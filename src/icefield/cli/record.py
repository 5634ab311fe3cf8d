"""`icefield record`: messages of a topic, written to files that a project can read in place of a broker."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from icefield.cli import output
from icefield.cli.guard import guarded
from icefield.cli.options import HERE, ProfileName, ProjectDir
from icefield.errors import NoTopic
from icefield.project import open_project
from icefield.run.planning import broker_settings
from icefield.words import plural


def register(app: typer.Typer) -> None:
    app.command("record")(guarded(record))


def record(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, or a pattern such as 'shop.*'.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder for recordings.")],
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many messages a partition.")] = None,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> None:
    """Record the messages of a topic, from where the last recording ended, for a project to read offline."""
    from icefield.engine.intake.topics.broker import open_broker  # noqa: PLC0415 - Kafka's client
    from icefield.engine.intake.topics.recorder import record_topic  # noqa: PLC0415

    opened = open_project(project, profile)
    broker = open_broker(broker_settings(opened.profile))
    found = broker.topics((lambda name: fnmatchcase(name, topic)) if "*" in topic else topic)
    if not found:
        raise NoTopic(f"there is no topic {topic}", remedy="check its name and `[profile.NAME.kafka]` in icefield.toml")
    for name in sorted(found):
        with output.writing(directory):
            recorded = record_topic(broker, found[name], directory, limit)
        place = f" in {recorded.file}" if recorded.file is not None else ""
        output.line(f"{name}: {plural(recorded.messages, 'message')}{place}")
