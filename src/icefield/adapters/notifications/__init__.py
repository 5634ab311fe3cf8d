"""Notifications: a command or a webhook is told of failures, of checks that turned and of many quarantined rows.

`[notify]` in icefield.toml asks for it. Each message is about a change: what goes on as before is not told again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from icefield.adapters.notifications.notifier import Notifier
    from icefield.project import Project


def subscriber(project: Project) -> Notifier:
    """What hears of a project's runs."""
    from icefield.adapters.notifications.notifier import Notifier  # noqa: PLC0415 - the one module that others need

    return Notifier(project)
