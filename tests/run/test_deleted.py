"""A landed file that is gone: nothing is lost by it, or all that came from it is withdrawn, as the author said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from icefield.errors import AllFilesGone, FileMissing
from icefield.graph.state import Repair
from icefield.plan import Wishes
from icefield.project import open_project
from icefield.run.planning import plan_project, selected
from projects import ORDERS, TinyProject, order, tiny

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

WITHDRAWING = ORDERS.replace('at TIMESTAMP")', 'at TIMESTAMP", deleted="withdraw")')
BAD = order(9, "bob", "-9.00")


def ids(project: TinyProject, table: str = "bronze.orders") -> list[int]:
    return [number for (number,) in project.ask(f"SELECT id FROM {table} ORDER BY id")]


def waiting(project: TinyProject) -> list[tuple[Any, ...]]:
    return project.ask("SELECT arrival, line, id FROM bronze.orders__quarantine ORDER BY ALL")


def noted(project: TinyProject, name: str) -> list[tuple[Any, ...]]:
    query = f"SELECT status, rows, arrival FROM ops.files WHERE path = 'landing/orders/{name}' ORDER BY sequence"
    return project.ask(query)


def require_all_accounted_for(project: TinyProject) -> None:
    """As many rows were read from the files as are kept and wait, and a rebuild gives the same."""
    last = "SELECT arg_max(rows, sequence) AS rows FROM ops.files WHERE \"table\" = 'bronze.orders' GROUP BY path"
    (landed,) = project.ask(f"SELECT sum(rows) FROM ({last})")
    assert landed == (len(ids(project)) + len(waiting(project)),)
    before = project.everything()
    assert project.run(full_refresh=True).status == "published"
    assert project.everything() == before


def test_what_came_from_a_file_that_is_gone_is_withdrawn_everywhere(tmp_path: Path) -> None:
    project = tiny(tmp_path, WITHDRAWING)
    first = project.land("1.csv", [order(1, "ann", "1.00"), BAD])
    project.land("2.csv", [order(1, "bob", "2.00"), order(3, "bob", "3.00")])
    project.run()
    assert (ids(project), waiting(project)) == ([1, 3], [(0, 3, 9), (1, 2, 1)])
    content = first.read_bytes()
    first.unlink()

    opened = open_project(tmp_path)
    states = project.lake.states()
    plan = plan_project(opened, project.lake, states, selection=selected(opened), wishes=Wishes())
    step = plan.step("bronze.orders")
    assert step is not None
    assert (step.action, step.reason) == ("update", "1 file removed: landing/orders/1.csv")

    assert project.run().status == "published"
    assert (ids(project), waiting(project)) == ([1, 3], []), "the row that came second is the first now"
    assert project.ask("SELECT customer, amount, orders FROM gold.by_customer") == [("bob", 5, 2)]
    assert noted(project, "1.csv") == [("taken", 2, 0), ("withdrawn", 0, 0)]
    assert project.run().status == "nothing new"
    require_all_accounted_for(project)

    project.land("1.csv", content)
    result = project.run()
    assert {one.table: one.action for one in result.tables}["bronze.orders"] == "append", "what comes back is new"
    assert (ids(project), waiting(project)) == ([1, 3], [(2, 2, 1), (2, 3, 9)])
    assert noted(project, "1.csv") == [("taken", 2, 0), ("withdrawn", 0, 0), ("taken", 2, 2)]
    require_all_accounted_for(project)


def test_decisions_about_rows_of_a_file_go_with_it(tmp_path: Path) -> None:
    project = tiny(tmp_path, WITHDRAWING.partition('@table("silver')[0])
    content = project.land("1.csv", [order(1), BAD]).read_bytes()
    project.land("2.csv", [order(2)])
    project.run()
    repair = Repair(table="bronze.orders", kind="replay", assign=(("amount", "abs(amount)"),))
    project.run(select="bronze.orders+", replay=("bronze.orders",), repairs=(repair,))
    assert ids(project) == [1, 2, 9]
    (tmp_path / "landing/orders/1.csv").unlink()
    project.run()
    assert ids(project) == [2]
    project.land("1.csv", content)
    project.run()
    assert (ids(project), waiting(project)) == ([1, 2], [(2, 3, 9)]), "it waits for a decision of its own"
    require_all_accounted_for(project)


def test_an_empty_landing_folder_is_an_error_and_an_empty_file_in_it_is_a_word(tmp_path: Path) -> None:
    project = tiny(tmp_path, WITHDRAWING)
    path = project.land("1.csv", [order(1), BAD])
    project.run()
    before = project.lake.pointers()
    path.unlink()
    for anew in (False, True):
        with pytest.raises(AllFilesGone):
            project.run(full_refresh=anew)
    assert project.lake.pointers() == before
    project.land("empty.csv", b"")
    assert project.run().status == "published"
    assert (ids(project), waiting(project), ids(project, "silver.sales")) == ([], [], [])
    assert project.ask("SELECT customer FROM gold.by_customer") == []


def test_a_folder_that_was_cleaned_up_loses_nothing(tmp_path: Path) -> None:
    project = tiny(tmp_path)
    project.land("1.csv", [order(1), BAD])
    project.run()
    (tmp_path / "landing/orders/1.csv").unlink()
    assert project.run().status == "nothing new"
    before = project.everything()
    project.declare(ORDERS.replace("amount > 0", "amount > -100"))
    assert project.run(accept=("bronze.orders",)).status == "published", "the new check is noted for what comes"
    with pytest.raises(FileMissing):  # not even when the lake has since seen the folder empty
        project.run(full_refresh=True)
    project.land("2.csv", [order(2)])
    project.run()
    with pytest.raises(FileMissing):
        project.run(full_refresh=True)
    assert (ids(project), waiting(project)) == ([1, 2], [(0, 3, 9)])
    assert before["bronze.orders"] <= project.everything()["bronze.orders"]
