"""Batches as a person sees them before a run: taken, new or changed, and what is missing between them. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

import batched
from icefield.errors import LandingMissing
from icefield.project import open_project
from icefield.run.batches import BatchState, batch_states, gaps
from projects import TinyProject, tiny


@pytest.fixture
def project(tmp_path: Path) -> TinyProject:
    return batched.taxi(tmp_path / "taxi")


def states(project: TinyProject) -> dict[str, tuple[str, int]]:
    [found] = batch_states(open_project(project.root))
    assert found.table == "raw.trips"
    return dict(found.batches)


def test_each_batch_is_taken_new_or_changed(project: TinyProject) -> None:
    assert states(project) == {"2026-01": ("changed", 1), "2026-02": ("taken", 1), "2026-04": ("new", 1)}


def test_before_the_first_run_all_are_new(tmp_path: Path) -> None:
    project = tiny(tmp_path / "taxi", batched.TRIPS)
    project.land("2026-01.csv", "id,fare,tip\n", folder="trips")
    assert states(project) == {"2026-01": ("new", 1)}


def test_a_batch_whose_files_were_cleared_away_is_still_taken(project: TinyProject) -> None:
    (project.root / "landing" / "trips" / "2026-02.csv").unlink()
    assert states(project) == {"2026-01": ("changed", 1), "2026-02": ("taken", 0), "2026-04": ("new", 1)}


def test_a_batch_whose_rows_go_with_their_files_is_changed(project: TinyProject) -> None:
    project.declare(batched.TRIPS.replace('batch="month"', 'batch="month", deleted="withdraw"'))
    (project.root / "landing" / "trips" / "2026-02.csv").unlink()
    assert states(project)["2026-02"] == ("changed", 0)


def test_a_landing_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    project = tiny(tmp_path / "taxi", batched.TRIPS)
    with pytest.raises(LandingMissing, match="landing/trips does not exist"):
        batch_states(open_project(project.root))


@pytest.mark.parametrize(
    ("values", "missing"),
    [
        (["2025-11", "2026-02"], ["2025-12", "2026-01"]),
        (["2026-02-27", "2026-03-02"], ["2026-02-28", "2026-03-01"]),
        (["2026-01"], []),
        ([], []),
        (["bronx", "queens"], []),
        (["2026-02-27", "2026-02-31"], []),  # not a day, so who knows what they are
    ],
)
def test_months_and_days_between_the_first_and_the_last_are_missed(values: list[str], missing: list[str]) -> None:
    assert gaps(values) == missing


def test_only_months_and_days_can_be_missed() -> None:
    def periodic(*values: str) -> bool:
        return BatchState(table="raw.trips", batches=dict.fromkeys(values, ("new", 1))).periodic

    assert [periodic("2026-01"), periodic("2026-01-31"), periodic("bronx"), periodic()] == [True, True, False, False]
