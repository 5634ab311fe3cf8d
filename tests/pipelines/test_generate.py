"""The landing generator: its bytes, its manifest, and what it leaves behind when it is stopped."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "pipelines" / "ecommerce" / "generate.py"
FEEDS = {"customer_events": 20, "payment_transactions": 10, "inventory_snapshots": 5, "support_tickets": 3}
SMALL: dict[str, Any] = {"rows": 38_000, "days": 7, "start": "2026-08-01", "seed": 7, "dirty": 0.02}


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generator = _load(SCRIPT)
recompute = _load(ROOT / "tests" / "e2e" / "recompute.py").recompute


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("landing")
    generator.generate(out, **SMALL)
    return out


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    out = tmp_path_factory.mktemp("clean")
    generator.generate(out, **SMALL | {"dirty": 0.0, "days": 14})
    con: duckdb.DuckDBPyConnection = recompute(out, [landed(out)])
    return con


def landed(out: Path) -> list[str]:
    return sorted(path.relative_to(out).as_posix() for path in out.glob("*/*.csv"))


def digests(out: Path) -> dict[str, str]:
    files = [path for path in out.rglob("*") if path.is_file()]
    return {path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def manifest(out: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((out / "manifest.json").read_bytes())
    return data


def kind_of(reasons: list[str]) -> str:
    """The manifest's word for what the oracle found."""
    if reasons == ["malformed"]:
        return "malformed"
    if reasons[0].endswith("is unique"):
        return "duplicate"
    return "null_key" if reasons[0].endswith("is not null") else "bad_value"


def found_dirt(out: Path, batches: list[list[str]]) -> dict[str, dict[str, dict[str, list[int]]]]:
    """Lines by feed, day and kind, as the independent recomputation sees them."""
    con = recompute(out, batches)
    found: dict[str, dict[str, dict[str, list[int]]]] = {feed: {} for feed in FEEDS}
    for feed in FEEDS:
        query = f"SELECT source_file, line, reasons FROM quarantine.{feed} ORDER BY source_file, line"
        for source_file, line, reasons in con.execute(query).fetchall():
            assert len(reasons) == 1, (source_file, line, reasons)
            day = found[feed].setdefault(Path(source_file).stem, {kind: [] for kind in generator.KINDS})
            day[kind_of(reasons)].append(line)
    return found


def recorded_dirt(out: Path) -> dict[str, dict[str, dict[str, list[int]]]]:
    feeds = manifest(out)["feeds"]
    return {
        feed: {day: said["lines"] for day, said in days.items() if any(said["lines"].values())}
        for feed, days in feeds.items()
    }


def value(con: duckdb.DuckDBPyConnection, query: str) -> Any:
    row = con.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_the_same_arguments_give_the_same_bytes(landing: Path, tmp_path: Path) -> None:
    generator.generate(tmp_path / "again", **SMALL)
    generator.generate(tmp_path / "other", **SMALL | {"seed": 8})
    assert digests(tmp_path / "again") == digests(landing)
    generator.generate(tmp_path / "again", **SMALL)  # over itself
    assert digests(tmp_path / "again") == digests(landing)
    same = digests(tmp_path / "other").items() & digests(landing).items()
    assert not same


def test_rows_are_split_by_the_shares_and_counted_exactly(landing: Path) -> None:
    feeds = manifest(landing)["feeds"]
    days = [f"2026-08-0{day}" for day in range(1, 8)]
    for feed, share in FEEDS.items():
        assert list(feeds[feed]) == days
        assert sum(day["rows"] for day in feeds[feed].values()) == share * 1000
        for day, said in feeds[feed].items():
            assert (landing / feed / f"{day}.csv").read_bytes().count(b"\n") - 1 == said["rows"]
            assert said["dirty"] == {kind: len(lines) for kind, lines in said["lines"].items()}
        dirty = Counter[str]()
        for said in feeds[feed].values():
            dirty.update(said["dirty"])
        assert sum(dirty.values()) == round(share * 1000 * 0.02)
        assert all(dirty[kind] > 0 for kind in generator.KINDS)
    assert {path.name for path in landing.iterdir()} == {*FEEDS, "manifest.json"}


def test_rows_that_do_not_divide_are_all_there(tmp_path: Path) -> None:
    said = generator.generate(tmp_path, rows=1001, days=3)
    assert sum(day["rows"] for days in said["feeds"].values() for day in days.values()) == 1001
    assert sum((tmp_path / name).read_bytes().count(b"\n") - 1 for name in landed(tmp_path)) == 1001


def test_the_dirty_lines_are_exactly_those_of_the_manifest(landing: Path) -> None:
    assert found_dirt(landing, [landed(landing)]) == recorded_dirt(landing)
    one_by_one = [[name for name in landed(landing) if f"0{day}.csv" in name] for day in range(1, 8)]
    assert found_dirt(landing, one_by_one) == recorded_dirt(landing)


def test_duplicates_repeat_an_earlier_clean_line(landing: Path) -> None:
    feeds = manifest(landing)["feeds"]
    for feed, days in feeds.items():
        for day, said in days.items():
            lines = (landing / feed / f"{day}.csv").read_bytes().split(b"\n")
            assert [int(line) for line in said["repeats"]] == said["lines"]["duplicate"]
            for line, place in said["repeats"].items():
                name, number = place.split(":")
                first = (landing / name).read_bytes().split(b"\n")[int(number) - 1]
                assert first == lines[int(line) - 1]
                assert (Path(name).stem, int(number)) < (day, int(line))
                assert all(int(number) not in dirty for dirty in days[Path(name).stem]["lines"].values())


def test_every_way_to_be_malformed_occurs(landing: Path) -> None:
    for feed, days in manifest(landing)["feeds"].items():
        ways = Counter[str]()
        for day, said in days.items():
            lines = (landing / feed / f"{day}.csv").read_bytes().split(b"\n")
            width = lines[0].count(b",")
            for raw in (lines[number - 1] for number in said["lines"]["malformed"]):
                if raw.count(b",") != width:
                    ways["too few" if raw.count(b",") < width else "too many"] += 1
                elif b"\xff" in raw:
                    with pytest.raises(UnicodeDecodeError):
                        raw.decode()
                    ways["not UTF-8"] += 1
                else:
                    ways["1.999" if b",1.999," in raw else "text"] += 1
        expected = {"too few", "too many", "not UTF-8", "text"} | (
            {"1.999"} if feed == "payment_transactions" else set()
        )
        assert set(ways) == expected


def test_clean_data_is_clean_and_every_check_of_the_tables_holds(clean: duckdb.DuckDBPyConnection) -> None:
    for feed, share in FEEDS.items():
        assert value(clean, f"SELECT count(*) FROM bronze.{feed}") == share * 1000
        assert value(clean, f"SELECT count(*) FROM quarantine.{feed}") == 0
    converted = "SELECT customer_id FROM silver.customer_sessions WHERE is_converted"
    assert not clean.execute(f"{converted} EXCEPT SELECT customer_id FROM bronze.payment_transactions").fetchall()
    paid = "SELECT product_id FROM silver.payment_analysis"
    assert not clean.execute(f"{paid} EXCEPT SELECT product_id FROM bronze.inventory_snapshots").fetchall()
    assert (
        value(clean, "SELECT max(CAST(event_timestamp AS DATE))::VARCHAR FROM bronze.customer_events") == "2026-08-14"
    )
    assert value(clean, "SELECT max(conversion_rate) <= 1 FROM gold.product_summary")


def test_fail_checks_hold_with_dirt(landing: Path) -> None:
    con = recompute(landing, [landed(landing)])
    revenues = [
        value(con, "SELECT sum(amount) FROM silver.payment_analysis WHERE status = 'completed'"),
        value(con, "SELECT sum(total_ltv) FROM gold.customer_summary"),
        value(con, "SELECT sum(total_revenue) FROM gold.daily_metrics"),
        value(con, "SELECT sum(revenue_generated) FROM gold.product_summary"),
    ]
    assert len(set(revenues)) == 1
    events = value(con, "SELECT count(*) FROM bronze.customer_events")
    assert value(con, "SELECT sum(event_count) FROM silver.customer_sessions") == events


def test_behaviour_is_plausible(clean: duckdb.DuckDBPyConnection) -> None:
    sessions = "silver.customer_sessions"
    assert value(clean, f"SELECT max(session_duration_seconds) FROM {sessions}") <= 3600
    assert 120 < value(clean, f"SELECT median(session_duration_seconds) FROM {sessions} WHERE NOT is_bounce") < 1200
    unseen = """
        SELECT customer_id, session_id, product_id FROM bronze.customer_events WHERE event_type = 'purchase'
        EXCEPT
        SELECT b.customer_id, b.session_id, b.product_id FROM bronze.customer_events b JOIN bronze.customer_events v
            ON v.session_id = b.session_id AND v.product_id = b.product_id AND v.event_type = 'view'
            AND v.event_id < b.event_id AND v.event_timestamp <= b.event_timestamp
        WHERE b.event_type = 'purchase'"""
    assert not clean.execute(unseen).fetchall()
    hour = "date_part('hour', CAST(event_timestamp AS TIMESTAMP))"
    night, evening = (
        value(clean, f"SELECT count(*) FROM bronze.customer_events WHERE {hour} BETWEEN {first} AND {first + 3}")
        for first in (1, 18)
    )
    assert evening > 5 * night
    weekend, weekday = (
        value(clean, f"SELECT avg(total_orders) FROM gold.daily_metrics WHERE isodow(transaction_date) {days}")
        for days in (">= 6", "< 6")
    )
    assert weekend > 1.2 * weekday
    fifth = "ntile(5) OVER (ORDER BY product_purchases DESC) AS fifth"
    ranked = f"SELECT revenue_generated AS r, {fifth} FROM gold.product_summary"
    assert value(clean, f"SELECT sum(r) FILTER (fifth = 1) / sum(r) FROM ({ranked})") > 0.4
    strangers = "SELECT customer_id FROM silver.support_metrics EXCEPT SELECT customer_id FROM silver.payment_analysis"
    assert not clean.execute(strangers).fetchall()


def test_append_continues_after_the_last_day_with_fresh_ids(tmp_path: Path) -> None:
    generator.generate(tmp_path, **SMALL)
    first, before = landed(tmp_path), digests(tmp_path)
    generator.generate(tmp_path, append=True, days=2, dirty=0.05)
    second = [name for name in landed(tmp_path) if name not in first]
    assert {Path(name).stem for name in second} == {"2026-08-08", "2026-08-09"}
    assert {name: digest for name, digest in digests(tmp_path).items() if name in first} == {
        name: digest for name, digest in before.items() if name in first
    }
    said = manifest(tmp_path)["feeds"]
    new_rows = {feed: sum(said[feed][day]["rows"] for day in ("2026-08-08", "2026-08-09")) for feed in FEEDS}
    assert sum(new_rows.values()) == round(38_000 / 7 * 2)
    assert found_dirt(tmp_path, [first, second]) == recorded_dirt(tmp_path)
    repeats = [place for days in said.values() for place in days["2026-08-08"]["repeats"].values()]
    assert any("2026-08-07" in place for place in repeats)  # also rows of days that were there before


def test_append_twice_equals_the_same_appends_elsewhere(tmp_path: Path) -> None:
    for out in (tmp_path / "a", tmp_path / "b"):
        generator.generate(out, **SMALL)
        generator.generate(out, append=True)
        generator.generate(out, append=True, rows=380, start="2026-09-01")
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert manifest(tmp_path / "a")["feeds"]["support_tickets"]["2026-09-01"]["rows"] == 30
    ids = [
        path.read_bytes().split(b"\n")[1].split(b",")[0] for path in sorted((tmp_path / "a/support_tickets").iterdir())
    ]
    assert len(set(ids)) == len(ids)


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    """Watched from outside while it runs: the size at first sight is the final size, and the manifest comes last."""
    arguments = ["--out", str(tmp_path), "--rows", "380000", "--days", "30"]
    with subprocess.Popen([sys.executable, str(SCRIPT), *arguments], stderr=subprocess.DEVNULL) as process:
        seen: dict[Path, int] = {}
        while process.poll() is None:
            whole = (tmp_path / "manifest.json").exists()
            for path in tmp_path.glob("*/*.csv"):
                seen.setdefault(path, path.stat().st_size)
            assert not whole or len(seen) == 120, "the manifest was there before all files"
    assert process.returncode == 0
    assert len(seen) > 10
    assert {path: path.stat().st_size for path in seen} == seen


def test_a_stopped_generation_leaves_whole_files_and_no_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, done = Path.replace, list[Path]()

    def fill_up(source: Path, target: Path) -> None:
        if len(done) == 10:
            raise OSError(28, "No space left on device", str(target))
        done.append(target)
        replace(source, target)

    monkeypatch.setattr(Path, "replace", fill_up)
    with pytest.raises(OSError, match="No space left"):
        generator.generate(tmp_path, **SMALL)
    monkeypatch.undo()
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(done)
    generator.generate(tmp_path, **SMALL)  # the same call again makes it whole
    assert len(landed(tmp_path)) == 28
    assert (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "many"], "--rows"),
        (["--rows", "5"], "--rows must be at least 38"),
        (["--days", "0"], "--days must be between"),
        (["--dirty", "0.9"], "--dirty"),
        (["--dirty", "nan"], "--dirty"),
        (["--seed", "-1"], "--seed"),
        (["--start", "yesterday"], "--start must be a date"),
        (["--start", "1990-01-01"], "--start"),
        (["--append"], "generate without --append first"),
    ],
)
def test_wrong_arguments_end_in_one_paragraph(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = generator.main(["--out", str(tmp_path / "out"), *arguments])
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_other_data_is_never_mixed_or_written_over(landing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = digests(landing)
    assert generator.main(["--out", str(landing), "--rows", "380"]) == 2
    assert "--append" in capsys.readouterr().err
    assert generator.main(["--out", str(landing), "--append", "--start", "2026-08-07"]) == 2
    assert "must be after 2026-08-07" in capsys.readouterr().err
    assert digests(landing) == before


def test_an_unwritable_folder_or_a_strange_manifest_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    assert generator.main(["--out", str(tmp_path / "file" / "landing"), "--rows", "380", "--days", "1"]) == 2
    assert "cannot write" in capsys.readouterr().err
    (tmp_path / "manifest.json").write_text("[]")
    assert generator.main(["--out", str(tmp_path), "--append"]) == 2
    assert "not a manifest" in capsys.readouterr().err
