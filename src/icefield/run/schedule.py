"""Runs steps side by side: each as soon as the tables it reads are done."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Generic, TypeVar

from icefield.interrupt import stop_if_asked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

Result = TypeVar("Result")
#: How long to wait for work to end before looking whether it is to stop, or telling it so again: it may just have begun
#: its next job.
_PATIENCE_SECONDS = 0.2

#: Tables staged at the same time. More than this only makes Spark's jobs wait for one another.
WORKERS = 4


class Schedule(Generic[Result]):
    """Work on a graph: `needs` says which others must be done before each name may begin."""

    def __init__(
        self, names: Sequence[str], needs: Mapping[str, Collection[str]], *, workers: int, cancel: Callable[[], None]
    ) -> None:
        self._waiting = list(names)
        self._needs = {name: [need for need in needs[name] if need in names] for name in names}
        self._workers = workers
        self._cancel = cancel

    def run(self, work: Callable[[str], Result], ended: Callable[[str, Future[Result]], bool]) -> list[str]:
        """Runs everything; `ended` hears of each end and says whether to go on.

        Returns the names that were not carried out: never begun, or told to stop.
        """
        finished: set[str] = set()
        running: dict[Future[Result], str] = {}
        with ThreadPoolExecutor(self._workers, thread_name_prefix="table") as pool:
            try:
                while True:
                    for name in self._ready(finished):
                        self._waiting.remove(name)
                        running[pool.submit(work, name)] = name
                    if not running:
                        return list(self._waiting)
                    stop_if_asked()
                    for future in wait(running, _PATIENCE_SECONDS, return_when=FIRST_COMPLETED).done:
                        name = running.pop(future)
                        if not ended(name, future):
                            return [*self._stop(running), *self._waiting]
                        if future.exception() is None:
                            finished.add(name)
            except BaseException:
                self._stop(running)
                raise

    def _ready(self, finished: set[str]) -> list[str]:
        return [name for name in self._waiting if all(need in finished for need in self._needs[name])]

    def _stop(self, running: Mapping[Future[Result], str]) -> list[str]:
        for future in running:
            future.cancel()
        while wait(running, timeout=_PATIENCE_SECONDS).not_done:
            self._cancel()
        return list(running.values())


class Later(Generic[Result]):
    """Something begun in the background; a process that is told to end does not wait for it."""

    def __init__(self, work: Callable[[], Result]) -> None:
        self._outcome: Future[Result] = Future()
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], Result]) -> None:
        try:
            self._outcome.set_result(work())
        except BaseException as error:
            self._outcome.set_exception(error)

    def result(self) -> Result:
        """What came of it, once it is there."""
        while not wait([self._outcome], _PATIENCE_SECONDS).done:
            stop_if_asked()
        return self._outcome.result()
