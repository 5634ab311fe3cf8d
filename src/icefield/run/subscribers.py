"""Subscribers hear of every run, whichever way it was started: they pass it on to OpenLineage, or notify someone.

A profile's settings say which there are; their modules are loaded by name, so that a run knows none of them. Each hears
of events in a thread of its own, in their order. Whatever goes wrong there is a warning, and no run fails or waits for
it, but for the last events: a process may end with the run.
"""

from __future__ import annotations

import datetime as dt
import importlib
import threading
import time
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from icefield.run.events import Event, RunEnded, RunRaised, Warned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from icefield.project import Project
    from icefield.run.events import Listener, RunResult
    from icefield.run.request import RunRequest

#: By the setting of a profile that asks for it: a module with `subscriber(project)`.
MODULES: Mapping[str, str] = {
    "openlineage": "icefield.adapters.openlineage",
    "notify": "icefield.adapters.notifications",
}


class Undelivered(Exception):
    """What was heard could not be passed on; the text is for people, and has no secret in it."""


class Subscriber(Protocol):
    """Hears of runs of one project; it may take its time, and may fail."""

    #: What it is called in a warning.
    name: str
    #: How long the end of a run waits for it at most.
    seconds: float
    #: Whether it needs to know where columns come from.
    column_lineage: bool

    def hear(self, event: Event, at: dt.datetime) -> None:
        """Passes on what happened, and when; what cannot be is an `Undelivered`."""


def with_subscribers(
    project: Project, order: RunRequest, listener: Listener, run: Callable[[RunRequest, Listener], RunResult]
) -> RunResult:
    """Carries out a run and tells subscribers of it; a dry run is nobody's business."""
    telling = None if order.dry_run else _open(project, listener)
    if telling is None:
        return run(order, listener)
    wanted = replace(order, column_lineage=order.column_lineage or telling.column_lineage)
    try:
        result = run(wanted, telling.hear)
    except BaseException as error:
        telling.end(RunRaised(error=error))
        raise
    return replace(result, warnings=telling.end(RunEnded(result=result)))


def tell_subscribers(project: Project, event: Event, listener: Listener) -> None:
    """Tells subscribers of something that happened outside of a run."""
    if (telling := _open(project, listener)) is not None:
        telling.end(event)


def _open(project: Project, listener: Listener) -> _Telling | None:
    wanted = [setting for setting in MODULES if getattr(project.profile, setting) is not None]
    return _Telling(project, listener, wanted) if wanted else None


class _Telling:
    """Tells a listener and the subscribers that some settings ask for."""

    def __init__(self, project: Project, listener: Listener, settings: list[str]) -> None:
        self._listener = listener
        self._outboxes: list[_Outbox] = []
        self._warnings: list[str] = []
        for setting in settings:
            try:
                self._outboxes.append(_Outbox(importlib.import_module(MODULES[setting]).subscriber(project)))
            except Exception as error:
                self._warnings.append(f"{setting}: it cannot be used: an unexpected {type(error).__name__}")
        self.column_lineage = any(outbox.subscriber.column_lineage for outbox in self._outboxes)

    def hear(self, event: Event) -> None:
        """Called from the threads of a run."""
        for outbox in self._outboxes:
            outbox.put(event)
        self._listener(event)

    def end(self, event: Event) -> tuple[str, ...]:
        """The last event; gives what went wrong, once all have passed it on or their time is over."""
        for outbox in self._outboxes:
            outbox.put(event)
        begun = time.monotonic()
        for outbox in self._outboxes:
            self._warnings += outbox.close(begun)
        for text in self._warnings:
            self._listener(Warned(text=text))
        return tuple(self._warnings)


class _Outbox:
    """What one subscriber has yet to hear."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.subscriber = subscriber
        self._events: SimpleQueue[tuple[Event, dt.datetime] | None] = SimpleQueue()
        self._problems: dict[str, None] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._deliver, name=subscriber.name, daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        self._events.put((event, dt.datetime.now(dt.UTC)))

    def close(self, begun: float) -> list[str]:
        """Waits until everything was heard, but not for long; gives what went wrong."""
        self._events.put(None)
        self._thread.join(max(0.0, begun + self.subscriber.seconds - time.monotonic()))
        self._closed.set()
        if self._thread.is_alive():
            self._problems[f"not everything could be sent within {self.subscriber.seconds:g} s"] = None
        return [f"{self.subscriber.name}: {problem}" for problem in self._problems]

    def _deliver(self) -> None:
        while (item := self._events.get()) is not None and not self._closed.is_set():
            try:
                self.subscriber.hear(*item)
            except Undelivered as problem:
                self._problems[str(problem)] = None
            except Exception as error:  # its text may be anything, a secret too
                self._problems[f"an unexpected {type(error).__name__}"] = None
