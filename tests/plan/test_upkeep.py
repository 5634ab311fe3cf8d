"""What upkeep may remove and what it writes together: rules over plain values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from icefield.graph.state import EMPTY, TableState, Version
from icefield.plan.upkeep import (
    FEW,
    Consumed,
    History,
    Retention,
    StoredFile,
    compaction,
    consumed_of,
    kept_times,
    kept_versions,
    superseded_before,
)

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOW = 1_800_000_000_000
WEEK = Retention(keep_ms=7 * DAY, last=3)
MB = 1_000_000


def table(name: str, snapshot: int, *, number: int = 1, epoch: int = 0, **told: object) -> TableState:
    return replace(EMPTY, name=name, version=Version(epoch=epoch, number=number, snapshot=snapshot), **told)


def history(*entries: tuple[int, int], named: frozenset[int] = frozenset()) -> History:
    """Snapshots that became current at these times, each the parent of the next."""
    snapshots = [snapshot for _, snapshot in entries]
    return History(
        current=snapshots[-1],
        snapshots=frozenset(snapshots),
        log=entries,
        lineage=tuple(reversed(snapshots)),
        named=named,
    )


# -- versions


def test_every_version_younger_than_the_limit_is_kept() -> None:
    times = [NOW - 8 * DAY, NOW - 6 * DAY, NOW - 6 * DAY + 1, NOW - 1]
    assert kept_times(times, NOW, replace(WEEK, last=1)) == {NOW - 6 * DAY, NOW - 6 * DAY + 1, NOW - 1}


def test_the_last_versions_are_kept_however_old_they_are() -> None:
    times = [NOW - days * DAY for days in (400, 300, 200, 100)]
    assert kept_times(times, NOW, WEEK) == set(times[1:])


def test_the_last_versions_of_a_table_stay_though_its_log_was_shortened() -> None:
    """Who opened one of the last versions is still reading it: only every so many-th of them is looked into."""
    whole = history(*((NOW + number, number) for number in range(30)))
    shortened = replace(whole, log=whole.log[-1:])
    kept = kept_versions(shortened, {NOW + 29}, [], last=20)
    assert kept.snapshots == set(range(10, 30))
    assert kept.log == ((NOW + 29, 29),)


def test_a_thinned_history_has_the_last_version_of_every_five_minutes_hour_and_day() -> None:
    retention = Retention(keep_ms=7 * DAY, thinned=True, last=20)
    times = [NOW - second * 1000 for second in range(0, 10 * 86_400, 10)]
    kept = sorted(kept_times(times, NOW, retention))
    assert len(kept) <= 20 + 13 + 25 + 8
    assert kept[0] >= NOW - 7 * DAY
    young = [time for time in kept if NOW - HOUR < time < NOW - 20 * 10_000]
    assert {(time // (5 * MINUTE), time % (5 * MINUTE)) for time in young if time < NOW - 5 * MINUTE} == {
        (time // (5 * MINUTE), 5 * MINUTE - 10_000) for time in young if time < NOW - 5 * MINUTE
    }


def test_thinning_an_hour_later_keeps_what_is_left_and_never_needs_what_is_gone() -> None:
    retention = Retention(keep_ms=7 * DAY, thinned=True, last=5)
    times, kept = set(), set()
    for second in range(0, 2 * 86_400, 30):
        times.add(NOW + second * 1000)
        if second % 600 == 0:
            kept = kept_times(times, NOW + second * 1000, retention)
            assert kept <= times
            times = set(kept)
    assert len(kept) < 60


def test_a_table_keeps_the_snapshot_that_was_current_at_each_kept_time() -> None:
    one = history((10, 1), (20, 2), (30, 3), (40, 4))
    kept = kept_versions(one, {25, 40}, [], last=1)
    assert kept.snapshots == {2, 4}
    assert kept.log == ((25, 2), (40, 4)), "at 22 it would be unknown, since other tables may be of another run"


def test_tables_of_one_lake_agree_at_every_kept_time() -> None:
    often, seldom = history(*((10 * n, n) for n in range(1, 9))), history((15, 100), (61, 200))
    times = {30, 70, 80}
    logs = [kept_versions(one, times, [], last=1).log for one in (often, seldom)]
    assert logs == [((30, 3), (70, 7), (80, 8)), ((30, 100), (70, 200))]


def test_a_snapshot_that_a_tag_names_stays() -> None:
    assert kept_versions(history((10, 1), (20, 2), (30, 3), named=frozenset({1})), {30}, [], last=1).snapshots == {1, 3}


def test_who_follows_a_table_finds_everything_since_it_last_read() -> None:
    one = history((10, 1), (20, 2), (30, 3), (40, 4), (50, 5))
    assert kept_versions(one, {50}, [Consumed(snapshot=2, follows=True)], last=1).snapshots == {2, 3, 4, 5}
    assert kept_versions(one, {50}, [Consumed(snapshot=2, follows=False)], last=1).snapshots == {2, 5}


def test_a_table_keeps_its_own_last_snapshots_for_a_while() -> None:
    kept = kept_versions(history((10, 1), (20, 2), (30, 3)), {30}, [], last=2)
    assert (kept.snapshots, kept.log) == ({2, 3}, ((30, 3),))


def test_consumers_of_another_epoch_and_tables_that_do_not_read_it_need_nothing() -> None:
    raw = table("raw", 9, epoch=1)
    now, before = Version(epoch=1, number=1, snapshot=5), Version(epoch=0, number=7, snapshot=3)
    readers = [table("a", 1, inputs={"raw": now}), table("b", 1, inputs={"raw": before}), table("c", 1)]
    assert consumed_of(raw, readers) == [Consumed(snapshot=5, follows=True)]
    assert consumed_of(replace(raw, changes=0), readers) == [Consumed(snapshot=5, follows=False)]


# -- files


def files(*sizes: int, deletes: int = 0, prefix: str = "f") -> list[StoredFile]:
    return [StoredFile(path=f"{prefix}{n:03}", size=size, deletes=deletes) for n, size in enumerate(sizes)]


def test_few_small_files_are_left_alone() -> None:
    assert compaction(files(*[1000] * (FEW - 1))) is None


def test_small_files_are_written_together_and_large_ones_are_not_read() -> None:
    found = compaction([*files(*[1000] * FEW), *files(500 * MB, 3 * MB, prefix="large")])
    assert found is not None
    assert {file.path[0] for file in found.files} == {"f"}
    assert not found.applies_deletes


def test_each_row_is_written_as_often_as_there_are_levels() -> None:
    stored: list[StoredFile] = []
    read = 0
    for number in range(4000):
        stored.append(StoredFile(path=f"{number:05}", size=200_000))
        if number % 20 == 19 and (found := compaction(stored)) is not None:
            stored = [file for file in stored if file not in found.files]
            stored.append(StoredFile(path=found.files[0].path, size=found.size))
            read += found.size
    assert read <= 3.5 * 4000 * 200_000
    assert len(stored) < 40


def test_files_with_several_deletes_are_all_written_again_so_that_the_deletes_can_go() -> None:
    deleted = files(200 * MB, 3 * MB, deletes=FEW // 2, prefix="d")
    found = compaction([*deleted, *files(1000, 100 * MB)])
    assert found is not None
    assert found.applies_deletes
    assert [file.path for file in found.files] == ["d000", "d001", "f000"]


def test_files_with_few_deletes_stay_beside_those_that_are_written_together() -> None:
    found = compaction([*files(1000, deletes=1, prefix="d"), *files(*[1000] * FEW)])
    assert found is not None
    assert "d000" not in [file.path for file in found.files]


def test_files_of_one_partition_are_written_together() -> None:
    days = [replace(file, partition=(day,)) for day in (1, 2, None) for file in files(*[1000] * (FEW - (day == 2)))]
    found = compaction(days)
    assert found is not None
    assert [file.partition for file in found.files] == [(1,)] * FEW + [(None,)] * FEW


def test_where_deletes_go_small_files_of_other_partitions_are_left_alone() -> None:
    deleted = [replace(file, partition=(1,)) for file in files(1000, deletes=FEW, prefix="d")]
    beside = [replace(file, partition=(day,)) for day in (1, 2) for file in files(1000, prefix=str(day))]
    found = compaction([*deleted, *beside])
    assert found is not None
    assert [file.path for file in found.files] == ["1000", "d000"]


@pytest.mark.parametrize(("before", "gone"), [(0, []), (21, ["1"]), (31, ["1", "2"]), (99, ["1", "2"])])
def test_a_metadata_file_is_superseded_when_the_next_one_is_written(before: int, gone: list[str]) -> None:
    assert superseded_before({"1": 10, "2": 20, "3": 30}, before) == gone
