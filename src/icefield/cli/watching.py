"""What `icefield run --watch` shows: one line that is drawn again on a terminal, else one line a run."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from icefield.cli import output
from icefield.cli.progress import PHASES, warn
from icefield.cli.upkeep import summary, upkept_as_data
from icefield.run.events import BatchStarted, Event, PhaseStarted, RunOvertaken
from icefield.run.watch import Failed, Maintained, Ran, Reloaded
from icefield.words import number, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from icefield.run.events import Listener
    from icefield.run.watch import Happening, Teller


@contextmanager
def showing(*, as_json: bool) -> Iterator[tuple[Teller, Listener]]:
    """What hears of runs, and what hears of their parts."""
    if as_json:
        yield _print_json, warn
    elif output.progress_is_drawn():
        display = _Display()
        with output.live(display.render):
            yield display.tell, display.hear
    else:
        yield _print_line, warn


def line_of(happening: Happening) -> str:
    """One line for what happened."""
    match happening:
        case Ran():
            return _line_of_run(happening)
        case Failed():
            again = f"; trying again in {happening.retry_seconds:.0f} s"
            return f"failed{f' {happening.times} times in a row' if happening.times > 1 else ''}{again}"
        case Reloaded():
            return f"the project changed and was loaded again: {plural(happening.tables, 'table')}"
        case Maintained(done=done):
            return f"upkeep  {summary(done)}"


def _line_of_run(ran: Ran) -> str:
    parts = [
        f"run {ran.number}",
        plural(ran.rows, "row"),
        f"{number(round(ran.rows_per_second))} rows/s",
        seconds(ran.result.seconds),
    ]
    if ran.lag is not None:
        parts.append(f"lag {number(ran.lag.messages)}")
    rejected = sum(table.rows_quarantined + table.rows_dropped for table in ran.result.tables)
    if rejected:
        parts.append(f"{number(rejected)} rejected")
    return "  ".join(parts)


def as_data(happening: Happening) -> dict[str, Any]:
    """What happened, as JSON."""
    at = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    match happening:
        case Ran(result=result):
            return {
                **at,
                "event": "run",
                "run": result.run,
                "rows": happening.rows,
                "rows_per_second": round(happening.rows_per_second, 1),
                "seconds": round(result.seconds, 3),
                "lag": happening.lag.messages if happening.lag else None,
                "newest_ms": happening.lag.newest_ms if happening.lag else None,
                "rejected": sum(table.rows_quarantined + table.rows_dropped for table in result.tables),
                "tables": {table.table: table.rows_added for table in result.tables},
                "phases": {phase: round(spent, 3) for phase, spent in result.phases.items()},
            }
        case Failed():
            run = happening.result.run if happening.result else ""
            told = {"run": run, "error": happening.error, "retry_seconds": happening.retry_seconds}
            return {**at, "event": "failure", **told, "times": happening.times}
        case Reloaded():
            return {**at, "event": "reload", "tables": happening.tables}
        case Maintained(done=done):
            return {**at, "event": "upkeep", **upkept_as_data(done)}


def _print_json(happening: Happening) -> None:
    output.json(as_data(happening))
    sys.stdout.flush()


def _print_line(happening: Happening) -> None:
    if isinstance(happening, Failed):
        output.failure(happening.error)
    output.line(f"{time.strftime('%H:%M:%S')} {line_of(happening)}")
    sys.stdout.flush()


@dataclass(slots=True)
class _Display:
    """The last run and what is going on; drawn by another thread than those that tell of it."""

    doing: str = "waiting for news"
    last: str = ""
    since: float = field(default_factory=time.monotonic)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, happening: Happening) -> None:
        if isinstance(happening, Failed):
            output.failure(happening.error)
        with self._guard:
            self.last = f"{time.strftime('%H:%M:%S')} {line_of(happening)}"
            self._do("waiting to try again" if isinstance(happening, Failed) else "waiting for news")

    def hear(self, event: Event) -> None:
        warn(event)
        with self._guard:
            match event:
                case PhaseStarted():
                    self._do(PHASES[event.phase])
                case RunOvertaken():
                    self._do("planning again: another run published first")
                case BatchStarted():
                    self._do(f"batch {event.batch} ({event.number} of {event.of})")

    def _do(self, doing: str) -> None:
        self.doing, self.since = doing, time.monotonic()

    def render(self) -> RenderableType:
        from rich.text import Text  # noqa: PLC0415 - only a terminal needs it

        with self._guard:
            told = f"{self.doing} {seconds(time.monotonic() - self.since)}"
            return Text("  |  ".join(filter(None, [self.last, told])), no_wrap=True, overflow="ellipsis")
