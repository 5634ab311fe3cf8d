"""Where a table's seconds go: reading, computing, checking, writing."""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Where rows are neither split nor compared, Spark computes them while it writes.
Part = Literal["read", "compute", "check", "write"]


@dataclass(slots=True)
class Clock:
    """Seconds by part; a part inside of another counts for itself alone."""

    seconds: dict[Part, float] = field(default_factory=dict)
    _inside: list[float] = field(default_factory=list)

    @contextmanager
    def spent(self, part: Part) -> Iterator[None]:
        """Counts the time of a block."""
        begun = time.monotonic()
        self._inside.append(0.0)
        try:
            yield
        finally:
            passed = time.monotonic() - begun
            own = passed - self._inside.pop()
            self.seconds[part] = self.seconds.get(part, 0.0) + own
            if self._inside:
                self._inside[-1] += passed


_clock: ContextVar[Clock | None] = ContextVar("icefield_clock", default=None)


@contextmanager
def timing() -> Iterator[Clock]:
    """A clock for one table, in this thread."""
    token = _clock.set(clock := Clock())
    try:
        yield clock
    finally:
        _clock.reset(token)


@contextmanager
def spent(part: Part) -> Iterator[None]:
    """Counts the time of a block for the table that this thread works on, if there is one."""
    if (clock := _clock.get()) is None:
        yield
        return
    with clock.spent(part):
        yield
