"""Runs steps side by side: each as soon as the tables it reads are done."""

from __future__ import annotations

import threading
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Result = TypeVar("Result")


class Schedule(Generic[Result]):
    """Work on a graph: `needs` says which others must be done before each name may begin."""

    def __init__(self, names: Sequence[str], needs: Mapping[str, Sequence[str]], workers: int) -> None:
        self._waiting = list(names)
        self._needs = {name: [need for need in needs[name] if need in names] for name in names}
        self._workers = workers
        self.stopped = threading.Event()

    def run(
        self,
        work: Callable[[str], Result],
        done: Callable[[str, Result], None],
        failed: Callable[[str, BaseException], bool],
    ) -> list[str]:
        """Runs everything; `failed` says whether to go on with what does not depend on the failure.

        Returns the names that were never started.
        """
        finished: set[str] = set()
        running: dict[Future[Result], str] = {}
        with ThreadPoolExecutor(self._workers, thread_name_prefix="table") as pool:
            try:
                while True:
                    if not self.stopped.is_set():
                        for name in self._ready(finished):
                            self._waiting.remove(name)
                            running[pool.submit(work, name)] = name
                    if not running:
                        return list(self._waiting)
                    ended, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        name = running.pop(future)
                        if (error := future.exception()) is None:
                            done(name, future.result())
                            finished.add(name)
                        elif not failed(name, error):
                            self.stopped.set()
            except BaseException:
                self.stopped.set()
                for future in running:
                    future.cancel()
                raise

    def _ready(self, finished: set[str]) -> list[str]:
        return [name for name in self._waiting if all(need in finished for need in self._needs[name])]
