"""Two ways to have jobs of reading done: by threads of the driver, while Spark starts, or by Spark's tasks."""

from __future__ import annotations

import pickle
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import pyarrow as pa

from icefield import errors
from icefield.errors import IcefieldError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import ThreadPoolExecutor

    from pyspark.sql import SparkSession


Done_co = TypeVar("Done_co", covariant=True)


class Job(Protocol[Done_co]):
    """Something to be read by one worker, on this machine or another one."""

    def do(self, attempt: str = "") -> Done_co:
        """Reads it; `attempt` tells what is written from what another try writes."""


class Threads:
    """Jobs done by the driver."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def run(self, jobs: Sequence[Job[Done_co]]) -> Iterable[Done_co]:
        """Does all jobs; the first failure stops the others."""
        work = [self._pool.submit(job.do) for job in jobs]
        try:
            for done in work:
                yield done.result()
        finally:
            for other in work:
                other.cancel()


class SparkTasks:
    """Jobs done by Spark, a task each; a task that is tried again writes files of its own."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(self, jobs: Sequence[Job[Done_co]]) -> Iterable[Done_co]:
        """Does all jobs; the first failure is raised as it was there."""
        if not jobs:
            return
        todo = list(jobs)

        def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield pa.record_batch({"done": pa.array([_outcome(todo[number])], pa.binary())})

        numbers = self._spark.range(0, len(todo), 1, len(todo))
        for row in numbers.mapInArrow(work, "done BINARY").collect():  # an iterator would do one task after the other
            outcome = pickle.loads(row["done"])
            if isinstance(outcome, _Failure):
                raise outcome.error()
            yield outcome


def _outcome(job: Job[object]) -> bytes:
    try:
        return pickle.dumps(job.do(f"-{uuid.uuid4().hex[:8]}"))
    except IcefieldError as error:
        return pickle.dumps(_Failure(type(error).__name__, error.what, error.where, error.remedy))


@dataclass(frozen=True, slots=True)
class _Failure:
    """An error of a task, to be raised by the driver."""

    kind: str
    what: str
    where: str
    remedy: str

    def error(self) -> IcefieldError:
        found: IcefieldError = getattr(errors, self.kind)(self.what, where=self.where, remedy=self.remedy)
        return found
