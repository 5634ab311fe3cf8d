"""Every file that a published table is made of is looked at, and named when it is gone or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from icefield.lake import metadata as meta
from icefield.lake.embedded import EmbeddedLake
from icefield.lake.wholeness import wholeness
from lakes import new_lake, publish


@pytest.fixture
def lake(tmp_path: Path) -> EmbeddedLake:
    lake = new_lake(tmp_path / "lake")
    publish(lake, {"a.one": [1], "a.two": [2]})
    publish(lake, {"a.one": [3]})
    return lake


def named(lake: EmbeddedLake) -> list[tuple[str, str, str]]:
    return [(damage.table, Path(damage.file).name, damage.told) for damage in wholeness(lake.pointers()).damages]


def files(lake: EmbeddedLake, pattern: str) -> list[Path]:
    return sorted((lake.warehouse / "a" / "one").rglob(pattern))


def test_a_whole_lake_is_found_whole(lake: EmbeddedLake) -> None:
    found = wholeness(lake.pointers())
    # three tables have metadata and a manifest list, and for each of five appends a manifest and a data file
    assert (found.files, found.damages) == (3 * 2 + 5 * 2, [])


@pytest.mark.parametrize("pattern", ["*.parquet", "*-m0.avro"])
def test_a_file_that_is_gone_is_named(lake: EmbeddedLake, pattern: str) -> None:
    for file in files(lake, pattern):
        content = file.read_bytes()
        file.unlink()
        assert named(lake) == [("a.one", file.name, "No such file or directory")]
        file.write_bytes(content)
    assert named(lake) == []


def test_a_file_that_was_cut_is_named(lake: EmbeddedLake) -> None:
    data, manifest = files(lake, "*.parquet")[0], files(lake, "*-m0.avro")[1]
    length = data.stat().st_size
    data.write_bytes(data.read_bytes()[:100])
    assert named(lake) == [("a.one", data.name, f"it has 100 bytes instead of {length:,}")]
    manifest.write_bytes(b"Obj")
    [broken] = [told for _, name, told in named(lake) if name == manifest.name]
    assert broken.startswith("it is not an Avro file")


def test_metadata_that_is_gone_is_named_and_the_other_tables_are_looked_at(lake: EmbeddedLake) -> None:
    of_all, of_one = wholeness(lake.pointers()).files, wholeness({"a.one": lake.pointers()["a.one"]}).files
    location = Path(lake.pointers()["a.one"])
    location.unlink()
    assert [(table, name) for table, name, _ in named(lake)] == [("a.one", location.name)]
    assert wholeness(lake.pointers()).files == of_all - of_one + 1


def test_what_only_older_snapshots_name_is_not_needed(lake: EmbeddedLake) -> None:
    first, _ = meta.load(lake.pointers()["a.one"])["snapshots"]
    Path(first["manifest-list"]).unlink()
    assert named(lake) == []
