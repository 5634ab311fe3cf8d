"""Decides what people are told of a run, and tells them by one message."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from icefield.adapters.notifications import notices
from icefield.adapters.notifications.notices import Before, Notice
from icefield.adapters.wording import code_of, raised
from icefield.errors import IcefieldError, Interrupted
from icefield.lake.embedded import EmbeddedLake
from icefield.run.events import RunDied, RunEnded, RunRaised, RunStarted

if TYPE_CHECKING:
    from pathlib import Path

    from icefield.project import Project
    from icefield.project.config import Config
    from icefield.run.events import Event, RunResult

#: Failures that no lake tells of, since no run began, by lake: a process of many tries tells of each once.
_unrecorded: dict[Path, tuple[str, str]] = {}


class Notifier:
    """Hears of the runs of one project."""

    name = "notify"
    column_lineage = False

    def __init__(self, project: Project) -> None:
        settings = project.profile.notify
        assert settings is not None
        self._project, self._settings = project, settings
        self._lake = EmbeddedLake(project.profile.lake)
        self._run = ""
        targets = bool(settings.command) + bool(settings.webhook)
        self.seconds = targets * settings.timeout_seconds + _LOOK_SECONDS

    def hear(self, event: Event, at: dt.datetime) -> None:
        """Sends a message where something is worth one."""
        match event:
            case RunDied():
                self._send(at, event.run, "died", self._died(event))
            case RunStarted():
                self._run = event.run
            case RunRaised() if not isinstance(event.error, Interrupted | KeyboardInterrupt):
                self._send(at, self._run, "failed", self._raised(event.error))
            case RunEnded():
                self._send(at, event.result.run, event.result.status, self._ended(event.result))

    # -- what is worth a message

    def _ended(self, result: RunResult) -> list[Notice]:
        unrecorded = _unrecorded.pop(self._lake.root, None)
        known = self._before(result.run) if result.run else Before()
        if unrecorded is not None and known.failure is None:
            known = replace(known, failure=("", frozenset()))
        found: list[Notice] = []
        if self._settings.failure:
            found += notices.failures(result, known)
        if self._settings.checks and result.run:  # else it is not recorded, and would be told again and again
            found += notices.turned(result.checks, known)
        if (limit := self._settings.quarantine_share) is not None:
            found += notices.quarantined(result.tables, limit, known)
        return found

    def _raised(self, error: BaseException) -> list[Notice]:
        """An error that ended a run, or did not let one begin."""
        told = raised(error)
        code, where = code_of(told), error.where if isinstance(error, IcefieldError) else ""
        past = self._before(self._run) if self._run else Before()
        if past.recorded:
            _unrecorded.pop(self._lake.root, None)
            known = past.failure is not None and past.failure[0] == code
        else:
            known = _unrecorded.get(self._lake.root) == (code, where)
            _unrecorded[self._lake.root] = (code, where)
        return self._failure(f"run {self._run} failed: {told}" if self._run else f"could not run: {told}", known=known)

    def _died(self, event: RunDied) -> list[Notice]:
        known = self._before(event.run).failure == ("died", frozenset())
        started = dt.datetime.fromtimestamp(event.started_ms / 1000, dt.UTC).isoformat(timespec="seconds")
        told = f"run {event.run}, started at {started}, died: its process ended without reporting an error"
        return self._failure(told, known=known)

    def _failure(self, message: str, *, known: bool) -> list[Notice]:
        if known or not self._settings.failure:
            return []
        return [Notice(kind="failure", status="firing", message=message)]

    def _before(self, run: str) -> Before:
        """What the lake says. If it cannot be read, nothing was before: rather too many messages than none."""
        from icefield.adapters.notifications.history import before  # noqa: PLC0415 - where there was a run

        try:
            return before(self._lake, run)
        except Exception:
            return Before()

    # -- the message

    def _send(self, at: dt.datetime, run: str, status: str, found: list[Notice]) -> None:
        if found or (run and self._settings.problem):
            from icefield.adapters.notifications.sending import send  # noqa: PLC0415 - where there is something to send

            send(self._settings, self._project.root, message(self._project, at, run, status, found))


def message(project: Project | Config, at: dt.datetime, run: str, status: str, found: list[Notice]) -> dict[str, Any]:
    """A message as JSON; `text` is what chat tools show."""
    told = "\n".join(notice.message for notice in found)
    return {
        "text": f"{project.name} ({project.profile.name}): {told}",
        "project": project.name,
        "profile": project.profile.name,
        "run": run,
        "status": status,
        "at": at.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "notices": [notice.as_data() for notice in found],
    }


#: How long reading what was before may take, besides sending.
_LOOK_SECONDS = 5.0
