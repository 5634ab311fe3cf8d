"""Rows that were evaluated once: in memory where they are small, in files where they are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from icefield.engine.batch import InFiles, InMemory, evaluate
from icefield.engine.session.spark import start_session, stop_session

pytestmark = [pytest.mark.spark, pytest.mark.own_spark]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    log = tmp_path_factory.mktemp("batch") / "spark.log"
    yield start_session(app="batch", conf={"spark.driver.maxResultSize": "1m"}, log=log)
    stop_session(wait=True)


def test_a_result_that_turns_out_too_large_for_the_driver_goes_to_files(session: Any, tmp_path: Path) -> None:
    few = session.range(10).selectExpr("id", "explode(sequence(1, 50000)) AS n", "uuid() AS text")
    batch = evaluate(few, tmp_path / "large")
    assert isinstance(batch, InFiles)
    assert batch.count() == 500_000


def test_small_rows_are_the_same_for_arrow_and_for_spark(session: Any, tmp_path: Path) -> None:
    frame = session.sql("SELECT id, named_struct('at', current_timestamp()) AS s, uuid() AS u FROM range(3)")
    for rows in (frame, frame.limit(0)):
        batch = evaluate(rows, tmp_path / "small")
        assert isinstance(batch, InMemory)
        assert batch.frame.toArrow().to_pylist() == batch.arrow().to_pylist()
