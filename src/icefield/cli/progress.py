"""What a run shows while it goes on: a live table on a terminal, one line a step otherwise."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icefield.cli import output
from icefield.cli.output import Column
from icefield.errors import few
from icefield.run.events import (
    BatchStarted,
    Event,
    PhaseStarted,
    RunBeside,
    RunOvertaken,
    TableOutcome,
    TableStarted,
    Warned,
)
from icefield.words import number, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from icefield.run.events import Listener

PHASES = {
    "plan": "planning",
    "start": "starting Spark",
    "fetch": "downloading Iceberg's jars (first run only)",
    "stage": "staging",
    "audit": "checking across tables",
    "publish": "publishing",
}
DONE = {
    "published": "done",
    "failed": "FAILED",
    "skipped": "skipped",
    "unchanged": "unchanged",
    "abandoned": "abandoned",
}
_COLUMNS = (
    Column(name="table"),
    Column(name="state"),
    Column(name="rows", right=True),
    Column(name="quarantined", right=True),
    Column(name="time", right=True),
)


@contextmanager
def showing() -> Iterator[Listener]:
    """A listener for a run."""
    if output.progress_is_drawn():
        display = _Display()
        with output.live(display.render):
            yield display.hear
    else:
        yield _Log().hear


@dataclass(slots=True)
class _Log:
    """Lines for a reader of a log. A phase that goes on after another, as the start after each jar, is told once."""

    said: set[str] = field(default_factory=lambda: {"plan"})

    def hear(self, event: Event) -> None:
        match event:
            case PhaseStarted(phase=phase) if phase in self.said:
                return
            case PhaseStarted(phase=phase):
                self.said.add(phase)
            case RunOvertaken() | BatchStarted():
                self.said = {"plan"}
        _tell(event)


def _tell(event: Event) -> None:
    """One line for a reader of a log."""
    clock = time.strftime("%H:%M:%S")
    match event:
        case PhaseStarted():
            output.note(f"{clock} {PHASES[event.phase]}")
        case TableOutcome(status="published"):
            aside = f"  {number(event.rows_quarantined)} quarantined" if event.rows_quarantined else ""
            rows = plural(event.rows_added, "row")
            output.note(f"{clock} {event.table}  {event.action}  {rows}{aside}  {seconds(event.seconds)}")
        case TableOutcome():
            tried = "" if event.action == "none" else f"{event.action}  "
            output.note(f"{clock} {event.table}  {tried}{DONE[event.status]}")
        case RunOvertaken():
            output.note(f"{clock} another run published {few(event.tables)} first; planning again")
        case RunBeside():
            _tell_of(event)
        case BatchStarted():
            output.note(f"{clock} batch {event.batch} ({event.number} of {event.of})")
        case Warned():
            warn(event)
        case TableStarted():
            pass


def warn(event: Event) -> None:
    """Shows a warning, and nothing else."""
    if isinstance(event, Warned):
        output.note(f"warning: {event.text}")


def _tell_of(other: RunBeside) -> None:
    since = time.strftime("%H:%M:%S", time.localtime(other.started_ms / 1000))
    output.note(
        f"another run ({other.run}, since {since}, pid {other.pid}) is working on this lake;"
        " the first to publish wins, the other plans again"
    )


@dataclass(slots=True)
class _Display:
    """The state of a run as far as it is known; drawn by another thread than those that tell of it."""

    begun: float = field(default_factory=time.monotonic)
    phase: str = "plan"
    started: dict[str, tuple[str, float]] = field(default_factory=dict)
    outcomes: dict[str, TableOutcome] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    batch: str = ""
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, event: Event) -> None:
        with self._guard:
            match event:
                case PhaseStarted():
                    self.phase = event.phase
                    if event.plan is not None:
                        self.waiting = tuple(step.table for step in event.plan.work)
                case TableStarted():
                    self.started[event.table] = (event.action, time.monotonic())
                case TableOutcome():
                    self.outcomes[event.table] = event
                case RunOvertaken():
                    self.started, self.outcomes = {}, {}
                case BatchStarted():
                    self.started, self.outcomes = {}, {}
                    self.batch = f"  batch {event.batch} ({event.number} of {event.of})"
                case RunBeside():
                    _tell_of(event)
                case Warned():
                    warn(event)

    def render(self) -> RenderableType:
        from rich.console import Group  # noqa: PLC0415 - only a terminal needs it
        from rich.text import Text  # noqa: PLC0415

        with self._guard:
            rows = [self._row(name) for name in self.waiting]
            done = sum(name in self.outcomes for name in self.waiting)
            count = f"  {done} of {len(rows)} tables" if rows else ""
            head = f"{PHASES[self.phase]}{count}{self.batch}  {seconds(time.monotonic() - self.begun)}"
        return Group(output.drawn(_COLUMNS, rows), Text(head, style="bold")) if rows else Text(head, style="bold")

    def _row(self, name: str) -> list[str]:
        if (outcome := self.outcomes.get(name)) is not None:
            rows, aside = number(outcome.rows_added), number(outcome.rows_quarantined or None)
            return [name, DONE[outcome.status], rows, aside, seconds(outcome.seconds)]
        if name in self.started:
            action, begun = self.started[name]
            return [name, action, "", "", seconds(time.monotonic() - begun)]
        return [name, "waiting", "", "", ""]
