"""`icefield notify`: who is notified of what, and a message to try it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from icefield.cli import output
from icefield.cli.guard import FAILED, guarded
from icefield.cli.options import HERE, ProfileName, ProjectDir
from icefield.errors import NotNotified
from icefield.project.config import find_project, read_config

if TYPE_CHECKING:
    from icefield.project.config import Config
    from icefield.project.outlets import Notify


def register(app: typer.Typer) -> None:
    app.command("notify")(guarded(notify))


def notify(
    *,
    test: Annotated[bool, typer.Option("--test", help="Send a test message, and say what came of it.")] = False,
    project: ProjectDir = HERE,
    profile: ProfileName = None,
) -> int:
    """Show who is notified of failures, checks that turned and quarantined rows; --test sends a message."""
    config = read_config(find_project(project), profile)
    settings = config.profile.notify
    if settings is None:
        output.sentence(f"Nobody is notified: neither [notify] nor [profile.{config.profile.name}.notify] is there.")
        return FAILED if test else 0
    for name, told in _shown(settings):
        output.line(f"{name:<10}{told}")
    if test:
        _send_test(config, settings)
        output.sentence("The test message was accepted.")
    return 0


def _shown(settings: Notify) -> list[tuple[str, str]]:
    """Who and what, without what may be secret."""
    words = settings.command.split() if isinstance(settings.command, str) else settings.command
    share = settings.quarantine_share
    events = ["failures"] * settings.failure + ["checks that turned"] * settings.checks
    events += [f"more than {share:.1%} of a run's rows quarantined"] if share is not None else []
    told = [
        ("webhook", urlsplit(settings.webhook).hostname or ""),
        ("command", next(iter(words), "")),
        ("problem", settings.problem),
        ("on", ", ".join(events) or "nothing"),
        ("timeout", f"{settings.timeout_seconds:g} s"),
    ]
    return [(name, text) for name, text in told if text]


def _send_test(config: Config, settings: Notify) -> None:
    from icefield.adapters.notifications.notices import Notice  # noqa: PLC0415 - where something is sent
    from icefield.adapters.notifications.notifier import message  # noqa: PLC0415
    from icefield.adapters.notifications.sending import send  # noqa: PLC0415
    from icefield.run.subscribers import Undelivered  # noqa: PLC0415

    notice = Notice(kind="test", status="firing", message="this is a test message")
    told = message(config, dt.datetime.now(dt.UTC), "", "test", [notice])
    try:
        send(settings, config.root, told, show=True)
    except Undelivered as problem:
        raise NotNotified(
            f"the test message was not accepted: {problem}",
            where="[notify] in icefield.toml",
            remedy="check the address, the command and the variables that they refer to",
        ) from None
