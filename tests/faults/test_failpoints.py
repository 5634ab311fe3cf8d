"""A run that stops at any named place leaves the lake as it was, or published whole; the next run just works.

Every case lands one more file on the same lake, stops a run at one place, looks, and runs again. In the end the lake
must be, row for row, what one undisturbed run over all the files makes. Places that need no Spark are tried without it
in `test_publishing.py`; ICEFIELD_FAULTS=all tries every place and every way to stop here as well.
"""

from __future__ import annotations

import os
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from icefield import failpoint
from icefield.lake.embedded import SCRATCH
from projects import TinyProject, order, tiny

pytestmark = [pytest.mark.spark, pytest.mark.faults]

#: Places that a run comes to.
POINTS = tuple(point for point in failpoint.POINTS if not point.startswith("upkeep."))
ALL = os.environ.get("ICEFIELD_FAULTS") == "all"
COMMITTED = ("publish.before-answer", "publish.committed", "publish.cleaned")
#: Where Spark is at work, and one place on each side of the commit.
KILLED = POINTS if ALL else ("stage.written", "audit.after", "publish.before-commit", "publish.committed")
#: Raising after the commit is the answer that got lost.
RAISED = POINTS if ALL else ("stage.written", "publish.committed")


class Orders:
    """The lake that all cases share, and what must be in it."""

    def __init__(self, root: Path) -> None:
        self.project = tiny(root / "disturbed")
        self.undisturbed = tiny(root / "undisturbed")
        self.landed = 0

    def land(self) -> None:
        """Two good rows, one repeated from the first file, one with a bad amount, one that is no row at all."""
        number = self.landed * 10 + 10
        lines = [
            order(number, "ann", "1.50"), order(number + 1, "bob", "2.25"), order(10, "bob", "2.25"),
            order(number + 2, "eve", "-1.00"), f"{number + 3},too few",
        ]  # fmt: skip
        for project in (self.project, self.undisturbed):
            project.land(f"{self.landed:03d}.csv", lines)
        self.landed += 1

    def require_all(self) -> None:
        """Every landed file is in once: the good rows in all tables, the others in quarantine."""
        good = {(10 * n + 10 + k) for n in range(self.landed) for k in (0, 1)}
        for table in ("bronze.orders", "silver.sales"):
            assert Counter(i for (i,) in self.project.ask(f"SELECT id FROM {table}")) == Counter(good), table
        totals = dict(self.project.ask("SELECT customer, amount FROM gold.by_customer"))
        assert totals == {"ann": Decimal("1.50") * self.landed, "bob": Decimal("2.25") * self.landed}
        reasons = Counter(r for (r,) in self.project.ask("SELECT unnest(reasons) FROM bronze.orders__quarantine"))
        assert reasons["amount is positive"] == self.landed
        assert reasons["id is unique"] == self.landed
        assert sum(n for reason, n in reasons.items() if reason.startswith("malformed")) == self.landed

    def require_tidy(self) -> None:
        """Nobody is at work: no branches, no locks, no metadata of inner steps, no scratch files."""
        lake = self.project.lake
        assert lake.catalog.branches() == {}
        assert list(lake.runs.glob("*.lock")) == []
        assert list((lake.warehouse / SCRATCH).glob("*")) == []
        assert [p for p in lake.warehouse.rglob("*.metadata.json") if p.parent.name != "metadata"] == []


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Orders:
    found = Orders(tmp_path_factory.mktemp("faults"))
    found.land()
    assert found.project.run().status == "published"
    found.require_all()
    return found


def published(project: TinyProject, status: str) -> list[str]:
    return [run for (run,) in project.ask(f"SELECT run FROM ops.runs WHERE status = '{status}'")]


@pytest.mark.parametrize("point", KILLED)
def test_killed_at_any_place_the_lake_is_whole_and_the_next_run_completes_it(orders: Orders, point: str) -> None:
    project = orders.project
    before, died = project.lake.pointers(), set(published(project, "died"))
    orders.land()
    assert project.spawn(f"{point}=kill").end().killed
    if point in COMMITTED:
        orders.require_all()
        assert project.run().status == "nothing new"
        assert set(published(project, "died")) == died
    else:
        assert project.lake.pointers() == before
        assert project.run().status == "published"
        (dead,) = set(published(project, "died")) - died
        assert project.files_of(dead) == []
    orders.require_all()
    orders.require_tidy()


@pytest.mark.parametrize("point", RAISED)
def test_an_error_at_any_place_fails_the_run_whole_or_not_at_all(
    orders: Orders, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = orders.project
    before = {table: at for table, at in project.lake.pointers().items() if not table.startswith("ops.")}
    orders.land()
    monkeypatch.setenv("ICEFIELD_FAILPOINTS", f"{point}=raise")
    if point == "run.opened":
        with pytest.raises(RuntimeError, match="failpoint"):
            project.run()
        monkeypatch.delenv("ICEFIELD_FAILPOINTS")
    else:
        result = project.run()
        monkeypatch.delenv("ICEFIELD_FAILPOINTS")
        status = "published" if point in COMMITTED else "failed"
        assert result.status == status, result.error
        recorded = not point.startswith(("ops.", "publish.")) or point in COMMITTED  # else it fails the record as well
        assert published(project, status).count(result.run) == recorded
    if point in COMMITTED:
        orders.require_all()
        assert project.run().status == "nothing new"
    else:
        now = project.lake.pointers()
        assert {table: at for table, at in now.items() if not table.startswith("ops.")} == before
        assert project.run().status == "published"
    orders.require_all()


def test_in_the_end_the_lake_is_what_one_undisturbed_run_makes(orders: Orders) -> None:
    assert orders.undisturbed.run().status == "published"
    assert orders.project.everything() == orders.undisturbed.everything()


def test_every_published_run_is_told_once_and_every_row_comes_from_a_published_run(orders: Orders) -> None:
    runs = published(orders.project, "published")
    assert len(runs) == len(set(runs))
    told = {run for (run,) in orders.project.ask("SELECT DISTINCT run FROM ops.files")}
    assert told <= set(runs)
    quarantined = {run for (run,) in orders.project.ask("SELECT DISTINCT run FROM bronze.orders__quarantine")}
    assert quarantined <= set(runs)
