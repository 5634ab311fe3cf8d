"""A cluster whose workers see the folder of the lake: its executors read what has landed, the tables are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters import standalone
from projects import ORDERS, TinyProject, order, tiny

pytestmark = [pytest.mark.services, pytest.mark.spark, pytest.mark.own_spark]

SOURCE = ORDERS.replace('at TIMESTAMP")', 'at TIMESTAMP", changed="replace")')
#: Executors also fetch the bytes of rejected rows.
NONE_BY_DRIVER = "from icefield.engine import limits; limits.LIMITS = limits.Limits(driver_rejects=0)"
FIRST = [*(order(n, f"c{n % 7}", f"{n}.50") for n in range(1, 400)), order(5), order(900, "bad", "-1.00"), "no order"]


def landed(root: Path) -> TinyProject:
    project = tiny(root, SOURCE)
    project.land("1.csv", FIRST)
    project.land("2.csv", [order(n) for n in range(1000, 1100)])
    return project


def test_executors_read_what_has_landed(tmp_path: Path) -> None:
    alone, shared = landed(tmp_path / "alone"), landed(tmp_path / "shared")
    assert alone.run().ok
    (tmp_path / "cluster").mkdir()
    with standalone(tmp_path / "cluster") as address:
        toml = shared.root / "icefield.toml"
        text = toml.read_text().replace('lake = "lake"\n', 'lake = "lake"\nshared = ["."]\n')
        settings = (
            f'"spark.master" = "{address}"\n"spark.driver.host" = "127.0.0.1"\n"spark.executor.memory" = "512m"\n'
        )
        toml.write_text(text + settings)
        first = shared.spawn(script=NONE_BY_DRIVER).end(300)
        assert first.code == 0, first.output
        assert shared.everything() == alone.everything()
        corrected = [order(1, "other", "7.00"), *FIRST[1:]]
        for project in (alone, shared):
            project.land("1.csv", corrected)
        second = shared.spawn(script=NONE_BY_DRIVER).end(300)
        assert second.code == 0, second.output
        read = list((tmp_path / "cluster").rglob("stderr"))
        assert len({file.parent.parent for file in read}) >= 2, "both workers had executors"
    assert alone.run().ok
    assert shared.everything() == alone.everything()
