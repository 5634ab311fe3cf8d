"""The shop project, whole: every table equals what plain Python works out from the same messages, after each run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from shop import require_rows, require_same, require_states

from projects import QUICK, TinyProject
from shop_messages import KEYS, Shop

pytestmark = pytest.mark.spark

PROJECT = Path(__file__).parents[2] / "pipelines" / "shop"
#: The rows that Postgres had when the recording was made, and all rows that committed transactions had written.
DATABASE = json.loads((Path(__file__).parent / "shop_recorded.json").read_text(encoding="utf-8"))


def project(root: Path) -> TinyProject:
    """A copy without messages, and with Spark's settings for few rows."""
    shutil.copytree(PROJECT, root, ignore=shutil.ignore_patterns("lake*", ".icefield", "__pycache__", "recorded"))
    settings = "\n".join(f'"{key}" = "{value}"' for key, value in QUICK.items())
    toml = root / "icefield.toml"
    toml.write_text(toml.read_text() + f"\n[profile.local.spark]\n{settings}\n")
    return TinyProject(root)


def record(made: TinyProject, name: str, file: str, lines: list[str]) -> None:
    place = made.root / "recorded" / f"shop.public.{name}"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{file}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def messages(made: TinyProject) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [
            json.loads(line)
            for file in sorted((made.root / "recorded" / f"shop.public.{name}").glob("*.jsonl"))
            for line in file.read_text(encoding="utf-8").splitlines()
        ]
        for name in KEYS
    }


def run_and_compare(made: TinyProject) -> None:
    result = made.run()
    assert result.ok, result.error
    assert {one.promise for one in result.tables} - {"", "full"} == {"proven"}
    require_same(made.lake.pointers(), messages(made))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> TinyProject:
    """The recording that comes with the project, taken in by two runs; topics come at different speeds."""
    made = project(tmp_path_factory.mktemp("shop") / "shop")
    shares = {"customers": 0.5, "products": 1.0, "orders": 0.6, "order_lines": 0.41}
    for number in range(2):
        for name in KEYS:
            lines = (PROJECT / "recorded" / f"shop.public.{name}" / "00000.jsonl").read_text("utf-8").splitlines()
            cuts = [0, int(shares[name] * len(lines)), len(lines)]
            if cuts[number] < cuts[number + 1]:
                record(made, name, f"{number:05}", lines[cuts[number] : cuts[number + 1]])
        run_and_compare(made)
    return made


def test_the_current_tables_are_the_rows_of_postgres(recorded: TinyProject) -> None:
    require_rows(recorded.lake.pointers(), DATABASE["tables"])


def test_the_history_is_every_state_that_was_committed_and_none_that_was_not(recorded: TinyProject) -> None:
    require_states(recorded.lake.pointers(), DATABASE["wrote"])


def test_then_there_is_nothing_new(recorded: TinyProject) -> None:
    assert recorded.run().status == "nothing new"


@pytest.mark.thorough
def test_messages_that_are_sent_again_truncates_and_late_snapshots(tmp_path: Path) -> None:
    """What a recording of a quiet hour does not have."""
    made, shop = project(tmp_path / "shop"), Shop(seed=20261118)
    shop.begin()
    shop.step(60)
    taken = dict.fromkeys(KEYS, 0)
    for number in range(2):
        for name in KEYS:
            shop.send_again(name, 3)
            record(made, name, f"{number:05}", [json.dumps(one) for one in shop.messages[name][taken[name] :]])
            taken[name] = len(shop.messages[name])
        run_and_compare(made)
        shop.step(6)
        shop.truncate("orders", "order_lines")
        shop.step(12)
