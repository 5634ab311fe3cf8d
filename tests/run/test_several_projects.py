"""Several projects in one process share Spark's JVM and disturb one another in nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from icefield.project import open_project
from icefield.run.checking import check_project
from icefield.run.planning import selected
from icefield.run.verifying import verify_project
from projects import ORDERS, TinyProject, order, tiny

pytestmark = pytest.mark.spark

#: What time it is in the session's zone when it is midnight in UTC.
CLOCKS = (
    ORDERS
    + """

@table("gold.clocks", refresh=full())
def clocks(sales: DataFrame) -> DataFrame:
    return sales.select("id", F.expr("date_format(timestamp_seconds(0), 'HH')").alias("hour"))
"""
)


def project_in(root: Path, zone: str, numbers: range) -> TinyProject:
    project = tiny(root, CLOCKS, spark={"spark.sql.session.timeZone": zone})
    project.land("a.csv", [order(n, f"c{n}") for n in numbers])
    return project


def checked(project: TinyProject) -> set[str]:
    opened = open_project(project.root)
    return {result.status for result in check_project(opened, selected(opened))}


def verified(project: TinyProject) -> set[str]:
    opened = open_project(project.root)
    return {verdict.status for verdict in verify_project(opened, selected(opened), deep=True)}


def hours(project: TinyProject) -> list[tuple[Any, ...]]:
    return project.ask("SELECT hour, count(*) FROM gold.clocks GROUP BY hour")


def test_projects_that_take_turns_keep_their_lakes_settings_and_session(tmp_path: Path) -> None:
    from pyspark import SparkContext

    london, tokyo = (
        project_in(tmp_path / "london", "UTC", range(3)),
        project_in(tmp_path / "tokyo", "Asia/Tokyo", range(5)),
    )
    assert [p.run().status for p in (london, tokyo)] == ["published", "published"]
    context = SparkContext._active_spark_context
    assert [checked(p) for p in (london, tokyo, london)] == [{"passed"}] * 3
    assert [verified(p) for p in (tokyo, london)] == [{"exact"}, {"exact"}]
    for project in (london, tokyo):
        project.land("b.csv", [order(100)])
        assert project.run().status == "published"
    assert (hours(london), hours(tokyo)) == ([("00", 4)], [("09", 6)])
    assert SparkContext._active_spark_context is context, "Spark was stopped in between"


def test_projects_that_work_at_the_same_time_do_not_meet(tmp_path: Path) -> None:
    """One of them fails, and stops what Spark does for it, all the while."""
    london, tokyo = (
        project_in(tmp_path / "london", "UTC", range(3)),
        project_in(tmp_path / "tokyo", "Asia/Tokyo", range(5)),
    )
    failing = tiny(
        tmp_path / "failing",
        ORDERS.replace("refresh=full(), checks=[", 'refresh=full(), checks=[expect_table("none", "count(*) = 0"), '),
    )
    failing.land("a.csv", [order(1)])

    def work(project: TinyProject) -> list[object]:
        done: list[object] = [project.run().status]
        project.land("b.csv", [order(100)])
        return [*done, checked(project), project.run().status, verified(project)]

    with ThreadPoolExecutor(3) as pool:
        both = [pool.submit(work, project) for project in (london, tokyo)]
        failed = pool.submit(lambda: [failing.run().status for _ in range(2)])
        assert [one.result() for one in both] == [["published", {"passed"}, "published", {"exact"}]] * 2
        assert failed.result() == ["failed"] * 2
    assert (hours(london), hours(tokyo)) == ([("00", 4)], [("09", 6)])
