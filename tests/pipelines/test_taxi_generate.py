"""The generator of taxi months: its trips, its manifest, and the TLC's schema of each time."""

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
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "pipelines" / "taxi" / "generate.py"
SERVICES = ("yellow", "green")
SMALL: dict[str, Any] = {"rows": 3000, "months": 2, "seed": 7, "dirty": 0.05}
REASONS = {
    "outside_month": "pickup in the file's month",
    "dropoff_not_after_pickup": "dropoff after pickup",
    "impossible_distance": "trip_distance is between 0 and 200",
    "refund": "total is not negative",
    "unknown_zone": "zones are known",
}


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"taxi_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generator = _load(SCRIPT)
recompute = _load(ROOT / "tests" / "e2e" / "taxi_recompute.py").recompute


@pytest.fixture(scope="module")
def landing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("landing")
    generator.generate(out, **SMALL)
    return out


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    out = tmp_path_factory.mktemp("clean")
    generator.generate(out, **SMALL | {"dirty": 0.0, "rows": 20_000, "months": 1})
    con: duckdb.DuckDBPyConnection = recompute(out)
    return con


def digests(out: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}


def manifest(out: Path) -> dict[str, dict[str, dict[str, Any]]]:
    data: dict[str, dict[str, dict[str, Any]]] = json.loads((out / "manifest.json").read_bytes())["services"]
    return data


def value(con: duckdb.DuckDBPyConnection, query: str) -> Any:
    row = con.execute(query).fetchone()
    assert row is not None
    return row[0]


def found(out: Path) -> dict[str, dict[str, dict[str, int]]]:
    """Trips of each kind by service and month, as the independent recomputation sees them."""
    con = recompute(out)
    counted: dict[str, dict[str, dict[str, int]]] = {}
    for service, months in manifest(out).items():
        quarantine = f"SELECT source_month, reasons FROM quarantine.stg_{service}_trips"
        reasons = Counter((month, tuple(found)) for month, found in con.execute(quarantine).fetchall())
        raw, staged, malformed = (
            dict(con.execute(f"SELECT {month}, count(*) FROM {table} GROUP BY 1").fetchall())
            for month, table in (
                ("source_month", f"raw.{service}_trips"),
                ("source_month", f"staging.stg_{service}_trips"),
                ("regexp_extract(source_file, '[0-9]{4}-[0-9]{2}')", f"malformed.{service}_trips"),
            )
        )
        counted[service] = {}
        for month in months:
            kinds = {kind: reasons.pop((month, (reason,)), 0) for kind, reason in REASONS.items()}
            kinds["malformed"] = malformed.get(month, 0)
            kinds["duplicate"] = raw[month] - staged[month] - sum(kinds[kind] for kind in REASONS)
            counted[service][month] = kinds
        assert not reasons, "a trip is dirty in more than one way"
    return counted


def recorded(out: Path) -> dict[str, dict[str, dict[str, int]]]:
    return {
        service: {month: entry["dirty"] for month, entry in months.items()} for service, months in manifest(out).items()
    }


def test_the_same_arguments_give_the_same_bytes(landing: Path, tmp_path: Path) -> None:
    generator.generate(tmp_path / "again", **SMALL)
    generator.generate(tmp_path / "other", **SMALL | {"seed": 8})
    assert digests(tmp_path / "again") == digests(landing)
    generator.generate(tmp_path / "again", **SMALL)  # over itself
    assert digests(tmp_path / "again") == digests(landing)
    same = digests(tmp_path / "other").items() & digests(landing).items()
    assert {name for name, _ in same} == {"taxi_zone_lookup.csv"}


def test_a_bare_call_makes_a_small_landing_folder(tmp_path: Path) -> None:
    project = tmp_path / "taxi"
    project.mkdir()
    (project / "generate.py").write_bytes(SCRIPT.read_bytes())
    said = subprocess.run([sys.executable, "generate.py"], cwd=project, check=True, capture_output=True, text=True)
    assert said.stderr.splitlines()[-1].endswith("holds 36,000 trips up to 2023-03")
    names = {f"{service}_tripdata_2023-0{month}.parquet" for service in SERVICES for month in (1, 2, 3)}
    assert {path.name for path in (project / "landing").iterdir()} == {
        *names,
        "taxi_zone_lookup.csv",
        "manifest.json",
    }
    assert found(project / "landing") == recorded(project / "landing")


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"format": "csv"},
        {"format": "csv", "start": "2018-12", "names": "snake"},
        {"start": "2018-06"},
        {"start": "2020-09", "names": "snake"},
        {"start": "2024-12"},
    ],
    ids=lambda how: "-".join(how.values()) or "default",
)
def test_the_dirty_trips_are_exactly_those_of_the_manifest(how: dict[str, str], tmp_path: Path) -> None:
    generator.generate(tmp_path, **SMALL | how)
    assert found(tmp_path) == recorded(tmp_path)
    for months in manifest(tmp_path).values():
        for entry in months.values():
            assert sum(entry["dirty"].values()) == 150
            assert min(entry["dirty"].values()) > 20
            assert entry["rejected"] == sum(entry["dirty"][kind] for kind in REASONS)
            assert entry["staged"] == entry["rows"] - 150


def test_a_month_that_is_written_in_parts_is_exact_too(tmp_path: Path) -> None:
    generator.generate(tmp_path, service="yellow", rows=100_001, months=1, dirty=0.1)
    assert found(tmp_path) == recorded(tmp_path)
    month = pq.ParquetFile(tmp_path / "yellow_tripdata_2023-01.parquet")
    parts = [month.metadata.row_group(number).num_rows for number in range(month.metadata.num_row_groups)]
    assert sum(parts) == 100_001
    assert max(parts) <= 60_000


def kinds(service: str, month: str) -> dict[str, str]:
    return {name: str(kind) for name, kind in generator.types(service, generator.Month.parse(month, "--start")).items()}


def test_types_change_as_the_tlcs_did() -> None:
    """What the files of these months have; some of it is in the footers of the real ones."""
    before, after = kinds("green", "2023-01"), kinds("green", "2023-02")
    assert {column: (kind, after[column]) for column, kind in before.items() if kind != after[column]} == {
        "vendor_id": ("int64", "int32"),
        "store_and_fwd_flag": ("string", "large_string"),
        "rate_code_id": ("double", "int64"),
        "pickup_location_id": ("int64", "int32"),
        "dropoff_location_id": ("int64", "int32"),
        "passenger_count": ("double", "int64"),
        "ehail_fee": ("null", "double"),
        "payment_type": ("double", "int64"),
        "trip_type": ("double", "int64"),
    }
    assert [kinds("yellow", month)["passenger_count"] for month in ("2018-06", "2018-07", "2023-01", "2023-02")] == [
        "int64",
        "double",
        "double",
        "int64",
    ]
    assert [kinds("yellow", month)["congestion_surcharge"] for month in ("2018-12", "2019-01")] == ["null", "double"]
    fees = [kinds("yellow", month)["airport_fee"] for month in ("2020-07", "2020-08", "2020-10", "2020-11")]
    assert fees == ["null", "double", "null", "double"]
    assert ["cbd_congestion_fee" in kinds("yellow", month) for month in ("2024-12", "2025-01")] == [False, True]


def test_files_have_the_columns_of_their_time(tmp_path: Path) -> None:
    def columns(start: str, service: str, **how: str) -> list[str]:
        out = tmp_path / "-".join([start, *how.values()])
        generator.generate(out, start=start, months=1, rows=10, **how)
        path = next(out.glob(f"{service}_tripdata_*"))
        return path.read_text().splitlines()[0].split(",") if path.suffix == ".csv" else pq.read_schema(path).names

    yellow = [
        "VendorID",
        "tpep_pickup_datetime",
        "tpep_dropoff_datetime",
        "passenger_count",
        "trip_distance",
        "RatecodeID",
        "store_and_fwd_flag",
        "PULocationID",
        "DOLocationID",
        "payment_type",
        "fare_amount",
        "extra",
        "mta_tax",
        "tip_amount",
        "tolls_amount",
        "improvement_surcharge",
        "total_amount",
    ]
    green = [
        "VendorID",
        "lpep_pickup_datetime",
        "lpep_dropoff_datetime",
        "store_and_fwd_flag",
        "RatecodeID",
        "PULocationID",
        "DOLocationID",
        "passenger_count",
        "trip_distance",
        "fare_amount",
        "extra",
        "mta_tax",
        "tip_amount",
        "tolls_amount",
        "ehail_fee",
        "improvement_surcharge",
        "total_amount",
        "payment_type",
        "trip_type",
        "congestion_surcharge",
    ]
    assert columns("2018-01", "yellow", format="csv") == yellow
    assert columns("2019-01", "yellow", format="csv") == [*yellow, "congestion_surcharge"]
    assert columns("2018-01", "yellow") == [*yellow, "congestion_surcharge", "airport_fee"]
    assert columns("2023-02", "yellow") == [*yellow, "congestion_surcharge", "Airport_fee"]
    assert columns("2025-01", "yellow")[-2:] == ["Airport_fee", "cbd_congestion_fee"]
    assert columns("2023-01", "green") == green
    assert columns("2025-01", "green") == [*green, "cbd_congestion_fee"]
    snake = columns("2023-01", "yellow", names="snake")
    assert snake[:3] == ["vendor_id", "pickup_datetime", "dropoff_datetime"]
    assert {"rate_code_id", "pickup_location_id", "dropoff_location_id", "airport_fee"} <= set(snake)


def test_a_column_without_values_has_the_null_type_in_the_file(tmp_path: Path) -> None:
    generator.generate(tmp_path, start="2023-01", months=2, rows=10)
    first, second = (pq.read_schema(tmp_path / f"green_tripdata_2023-0{month}.parquet") for month in (1, 2))
    assert first.field("ehail_fee").type == pa.null()
    assert second.field("ehail_fee").type == pa.float64()


def test_a_csv_month_has_the_trips_of_the_parquet_month(landing: Path, tmp_path: Path) -> None:
    generator.generate(tmp_path, **SMALL | {"format": "csv"})
    one, two = recompute(landing), recompute(tmp_path)
    for service in SERVICES:
        query = f"SELECT CAST(COLUMNS(* EXCLUDE (source_file)) AS VARCHAR) FROM raw.{service}_trips"
        assert Counter(one.execute(query).fetchall()) == Counter(two.execute(query).fetchall())
    lines = (tmp_path / "yellow_tripdata_2023-01.csv").read_text().splitlines()
    assert '"' not in lines[1]
    passengers = {line.split(",")[3] for line in lines[1:]}
    assert "1.0" in passengers  # a double in that month's files
    assert "" in passengers
    assert {line.split(",")[3] for line in (tmp_path / "yellow_tripdata_2023-02.csv").read_text().splitlines()} & {"1"}


def test_duplicates_and_refunds_follow_their_trip(landing: Path) -> None:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE trips AS SELECT * FROM read_parquet('{landing / 'yellow_tripdata_2023-01.parquet'}')")
    said = manifest(landing)["yellow"]["2023-01"]["dirty"]
    assert value(con, "SELECT count(*) - count(DISTINCT trips) FROM trips") == said["duplicate"]
    same = "tpep_pickup_datetime, tpep_dropoff_datetime, PULocationID, DOLocationID, trip_distance"
    pairs = f"""
        SELECT count(*) FROM trips AS refund JOIN trips AS trip USING ({same})
        WHERE refund.total_amount < 0 AND trip.total_amount = -refund.total_amount
          AND trip.fare_amount = -refund.fare_amount AND trip.tip_amount = -refund.tip_amount"""
    assert value(con, pairs) == said["refund"]


def test_the_zones_are_those_of_the_tlc_in_shape(landing: Path) -> None:
    raw = (landing / "taxi_zone_lookup.csv").read_bytes()
    assert raw.startswith(b'"LocationID","Borough","Zone","service_zone"\r\n1,"EWR","Newark Airport","EWR"\r\n')
    assert raw.endswith(b'264,"Unknown","N/A","N/A"\r\n265,"N/A","Outside of NYC","N/A"\r\n')
    con = recompute(landing)
    zones = "raw.taxi_zones"
    assert value(con, f"SELECT list(location_id ORDER BY location_id) FROM {zones}") == list(range(1, 266))
    assert value(con, f"SELECT count(*) FROM {zones} WHERE borough IS NULL OR zone IS NULL") == 0
    assert dict(con.execute(f"SELECT borough, count(*) FROM {zones} GROUP BY 1").fetchall()) == {
        "Manhattan": 69,
        "Queens": 69,
        "Brooklyn": 61,
        "Bronx": 43,
        "Staten Island": 20,
        "EWR": 1,
        "Unknown": 1,
        "N/A": 1,
    }
    assert 250 < value(con, f"SELECT count(DISTINCT zone) FROM {zones}") < 265


def test_clean_months_are_clean_and_plausible(clean: duckdb.DuckDBPyConnection) -> None:
    for service in SERVICES:
        assert value(clean, f"SELECT count(*) FROM staging.stg_{service}_trips") == 20_000
    trips = "staging.stg_yellow_trips"
    assert 1.0 < value(clean, f"SELECT median(trip_distance) FROM {trips}") < 4.0
    assert 5 < value(clean, f"SELECT median(trip_minutes) FROM {trips}") < 25
    assert 0.1 < value(clean, f"SELECT avg(tip_share) FROM {trips} WHERE payment_type = 1") < 0.3
    assert 0 < value(clean, f"SELECT count(*) FROM {trips} WHERE trip_distance = 0") < 1000
    assert 0.02 < value(clean, f"SELECT avg(CAST(passenger_count IS NULL AS INTEGER)) FROM {trips}") < 0.06
    in_manhattan = "SELECT avg(CAST(pickup_borough = 'Manhattan' AS INTEGER)) FROM staging.stg_{}_trips"
    assert value(clean, in_manhattan.format("yellow")) > 2 * value(clean, in_manhattan.format("green"))
    night, evening = (
        value(clean, f"SELECT count(*) FROM {trips} WHERE pickup_hour BETWEEN {hour} AND {hour + 2}")
        for hour in (3, 17)
    )
    assert evening > 4 * night
    parts = "fare_amount + extra + mta_tax + tip_amount + tolls_amount + improvement_surcharge"
    assert value(clean, f"SELECT count(*) FROM {trips} WHERE total_amount < {parts}") == 0
    assert value(clean, f"SELECT count(DISTINCT pickup_date) FROM {trips}") == 31


def test_append_continues_after_the_last_month(tmp_path: Path) -> None:
    generator.generate(tmp_path, **SMALL)
    before = digests(tmp_path)
    landed = [path for path in tmp_path.iterdir() if path.name != "manifest.json"]
    written = {path: path.stat().st_mtime_ns for path in landed}
    generator.generate(tmp_path, append=True)
    assert {path: path.stat().st_mtime_ns for path in landed} == written  # what is there is left alone
    generator.generate(tmp_path, append=True, months=2, service="green", rows=100, start="2023-05")
    assert {service: list(months) for service, months in manifest(tmp_path).items()} == {
        "yellow": ["2023-01", "2023-02", "2023-03"],
        "green": ["2023-01", "2023-02", "2023-03", "2023-05", "2023-06"],
    }
    kept = before.items() & digests(tmp_path).items()
    assert {name for name, _ in kept} == {*before} - {"manifest.json"}
    assert manifest(tmp_path)["green"]["2023-05"]["rows"] == 100
    assert found(tmp_path) == recorded(tmp_path)


def test_a_corrected_month_has_late_trips_and_less_dirt(tmp_path: Path) -> None:
    generator.generate(tmp_path, **SMALL)
    before, trips = digests(tmp_path), recompute(tmp_path)
    generator.generate(tmp_path, replace="2023-02", service="yellow")
    changed = {name for name, digest in digests(tmp_path).items() if before.get(name) != digest}
    assert changed == {"yellow_tripdata_2023-02.parquet", "manifest.json"}
    entry = manifest(tmp_path)["yellow"]["2023-02"]
    assert (entry["rows"], sum(entry["dirty"].values())) == (3030, 75)
    assert found(tmp_path) == recorded(tmp_path)
    columns = "CAST(COLUMNS(*) AS VARCHAR)"
    staged = f"SELECT {columns} FROM staging.stg_yellow_trips WHERE source_month = '2023-02'"
    first, second = (Counter(con.execute(staged).fetchall()) for con in (trips, recompute(tmp_path)))
    assert len(first & second) > 2700  # the trips are the same
    once = digests(tmp_path)
    generator.generate(tmp_path, replace="2023-02")
    assert sum(manifest(tmp_path)["yellow"]["2023-02"]["dirty"].values()) == 38
    assert sum(manifest(tmp_path)["green"]["2023-02"]["dirty"].values()) == 75
    assert digests(tmp_path)["yellow_tripdata_2023-02.parquet"] != once["yellow_tripdata_2023-02.parquet"]


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    """Watched from outside while it runs: the size at first sight is the final size, and the manifest comes last."""
    arguments = ["--landing", str(tmp_path), "--rows", "20000", "--months", "4", "--format", "csv"]
    with subprocess.Popen([sys.executable, str(SCRIPT), *arguments], stderr=subprocess.DEVNULL) as process:
        seen: dict[Path, int] = {}
        while process.poll() is None:
            whole = (tmp_path / "manifest.json").exists()
            for path in tmp_path.glob("[!.]*.csv"):
                seen.setdefault(path, path.stat().st_size)
            assert not whole or len(seen) == 9, "the manifest was there before all files"
    assert process.returncode == 0
    assert len(seen) > 3
    assert {path: path.stat().st_size for path in seen} == seen


def test_a_stopped_generation_leaves_whole_files_and_no_manifest(landing: Path, tmp_path: Path) -> None:
    in_the_way = tmp_path / "green_tripdata_2023-01.parquet"
    in_the_way.mkdir()
    with pytest.raises(IsADirectoryError):
        generator.generate(tmp_path, **SMALL)
    in_the_way.rmdir()
    names = {"taxi_zone_lookup.csv", "yellow_tripdata_2023-01.parquet", "yellow_tripdata_2023-02.parquet"}
    assert digests(tmp_path) == {name: digest for name, digest in digests(landing).items() if name in names}
    generator.generate(tmp_path, **SMALL)  # the same call again makes it whole
    assert digests(tmp_path) == digests(landing)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows", "many"], "--rows"),
        (["--rows", "1"], "--rows must be at least 2"),
        (["--months", "0"], "--months must be between"),
        (["--dirty", "0.9"], "--dirty"),
        (["--dirty", "nan"], "--dirty"),
        (["--seed", "-1"], "--seed"),
        (["--start", "January"], "--start must be a month"),
        (["--start", "2013-12"], "--start must be between 2014-01"),
        (["--service", "red"], "--service"),
        (["--format", "xlsx"], "--format"),
        (["--append"], "generate without --append first"),
        (["--replace", "2023-01"], "no generated yellow or green month 2023-01"),
        (["--replace", "soon"], "--replace must be a month"),
        (["--replace", "2023-01", "--rows", "5"], "--replace takes no --rows"),
    ],
)
def test_wrong_arguments_end_in_one_paragraph(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = generator.main(["--landing", str(tmp_path / "out"), *arguments])
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    assert message in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_other_data_is_never_mixed_or_written_over(
    landing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = digests(landing)
    assert generator.main(["--landing", str(landing), "--rows", "380"]) == 2
    assert "--append" in capsys.readouterr().err
    assert generator.main(["--landing", str(landing), "--append", "--start", "2023-02"]) == 2
    assert "must be after 2023-02" in capsys.readouterr().err
    assert generator.main(["--landing", str(landing), "--replace", "2024-02"]) == 2
    assert "it has months up to 2023-02" in capsys.readouterr().err
    assert digests(landing) == before
    (tmp_path / "yellow_tripdata_2019-01.parquet").write_bytes(b"a real month")
    assert generator.main(["--landing", str(tmp_path)]) == 2
    assert "holds files that this call would not write" in capsys.readouterr().err


def test_an_unwritable_folder_or_a_strange_manifest_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    assert generator.main(["--landing", str(tmp_path / "file" / "landing"), "--rows", "10"]) == 2
    assert "cannot write" in capsys.readouterr().err
    for strange in ("[]", "{}x", '{"services": {"yellow": {"2023-01": {}}}}'):
        (tmp_path / "manifest.json").write_text(strange)
        assert generator.main(["--landing", str(tmp_path), "--append"]) == 2
        assert "not a manifest" in capsys.readouterr().err
