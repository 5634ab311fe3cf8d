"""The judge judged: a handful of trips, their tables worked out by hand."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from taxi_recompute import recompute

ZONES = b"""\
"LocationID","Borough","Zone","service_zone"\r
1,"EWR","Newark Airport","EWR"\r
7,"Queens","Astoria","Boro Zone"\r
8,"Queens","Astoria","Boro Zone"\r
264,"Unknown","N/A","N/A"\r
265,"N/A","Outside of NYC","N/A"\r
"""
PLAIN = (
    "vendor_id,pickup_datetime,dropoff_datetime,passenger_count,trip_distance,rate_code_id,store_and_fwd_flag,"
    "pickup_location_id,dropoff_location_id,payment_type,fare_amount,extra,mta_tax,tip_amount,tolls_amount,"
    "improvement_surcharge,total_amount,congestion_surcharge"
)
TLC = (
    "VendorID,tpep_pickup_datetime,tpep_dropoff_datetime,passenger_count,trip_distance,RatecodeID,store_and_fwd_flag,"
    "PULocationID,DOLocationID,payment_type,fare_amount,extra,mta_tax,tip_amount,tolls_amount,improvement_surcharge,"
    "total_amount,congestion_surcharge,Airport_fee"
)


def trip(
    begin: str = "2023-01-05 10:00:00",
    end: str = "2023-01-05 10:10:00",
    *,
    miles: str = "2.0",
    zones: str = "7,8",
    fare: str = "10.0",
    tip: str = "1.0",
    total: str = "12.0",
    passengers: str = "1",
    more: str = "",
) -> str:
    """A line of a month without airport_fee."""
    return f"2,{begin},{end},{passengers},{miles},1,N,{zones},1,{fare},0,0.5,{tip},0,0.3,{total},{more}"


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    (tmp_path / "taxi_zone_lookup.csv").write_bytes(ZONES)
    return tmp_path


def land(landing: Path, *lines: str, header: str = PLAIN, name: str = "yellow_tripdata_2023-01.csv") -> None:
    (landing / name).write_text("\n".join([header, *lines]) + "\n")


def rows(con: duckdb.DuckDBPyConnection, query: str) -> Counter[tuple[Any, ...]]:
    return Counter(con.execute(query).fetchall())


def reasons(con: duckdb.DuckDBPyConnection, service: str = "yellow") -> Counter[tuple[str, ...]]:
    return Counter(
        tuple(row[0]) for row in con.execute(f"SELECT reasons FROM quarantine.stg_{service}_trips").fetchall()
    )


def count(con: duckdb.DuckDBPyConnection, table: str) -> int:
    found = con.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert found is not None
    return int(found[0])


def test_every_check_has_its_reason_and_a_row_lists_all(landing: Path) -> None:
    land(
        landing,
        trip("2023-01-01 00:00:00"),
        trip("2022-12-31 23:59:59", "2023-01-01 00:10:00"),
        trip("2023-02-01 00:00:00", "2023-02-01 00:10:00"),
        trip(end="2023-01-05 10:00:00"),
        trip(end="2023-01-05 09:59:59"),
        trip(miles="0"),
        trip(miles="200"),
        trip(miles="200.01"),
        trip(miles="-0.01"),
        trip(total="0.0"),
        trip(total="-0.01"),
        trip(zones="264,265"),
        trip(zones="1,9"),
        trip(zones="0,7"),
        trip(zones=",7"),
        trip("", "", miles="", total=""),
        trip("2022-12-05 10:00:00", "2022-12-04 10:00:00", miles="-1", total="-1", zones="0,0"),
    )
    month, after, far = "pickup in the file's month", "dropoff after pickup", "trip_distance is between 0 and 200"
    negative, zones = "total is not negative", "zones are known"
    con = recompute(landing)
    assert reasons(con) == Counter(
        {
            (month,): 2,
            (after,): 2,
            (far,): 2,
            (negative,): 1,
            (zones,): 3,
            (month, after): 1,
            (month, after, far, negative, zones): 1,
        }
    )
    assert count(con, "raw.yellow_trips") == 17
    assert count(con, "staging.stg_yellow_trips") == 5


def test_equal_trips_of_a_month_are_one_also_if_they_fail(landing: Path) -> None:
    land(landing, trip(), trip(miles="2.00"), trip(tip="1.01"), trip(total="-1"), trip(total="-1"))
    land(landing, trip(), name="yellow_tripdata_2023-02.csv")
    con = recompute(landing)
    assert count(con, "raw.yellow_trips") == 6
    assert count(con, "staging.stg_yellow_trips") == 2
    assert reasons(con) == Counter({("total is not negative",): 1, ("pickup in the file's month",): 1})


def test_trips_that_differ_in_an_unknown_column_are_two(landing: Path) -> None:
    land(landing, trip(more=",0.75"), trip(more=",0"), trip(more=",0"), header=f"{PLAIN},cbd_congestion_fee")
    con = recompute(landing)
    assert count(con, "staging.stg_yellow_trips") == 2


@pytest.mark.parametrize(
    "line",
    [
        trip(passengers="1.5"),
        trip(passengers="one"),
        trip(fare="10.005"),
        trip(miles="1e2"),
        trip("2023-01-05"),
        trip("2023-01-05 24:00:00"),
        trip("2023-02-30 10:00:00"),
        trip(more=",surplus"),
        "2,2023-01-05 10:00:00",
    ],
)
def test_a_value_that_is_none_makes_its_row_malformed(landing: Path, line: str) -> None:
    land(landing, trip(), line)
    con = recompute(landing)
    assert rows(con, "SELECT source_file, line, reasons[1] FROM malformed.yellow_trips") == Counter(
        [("landing/yellow_tripdata_2023-01.csv", 3, "malformed")]
    )
    assert count(con, "raw.yellow_trips") == 1


def test_names_and_line_ends_may_differ_and_a_missing_column_is_null(landing: Path) -> None:
    land(landing, trip(passengers="1.0"), trip(passengers="") + "\r", header=PLAIN + "\r")
    land(
        landing,
        trip("2024-01-05 10:00:00", "2024-01-05 10:10:00", more="2.5,1.75"),
        header=TLC,
        name="yellow_tripdata_2024-01.csv",
    )
    con = recompute(landing)
    columns = "passenger_count, congestion_surcharge, airport_fee, source_month"
    assert rows(con, f"SELECT {columns} FROM raw.yellow_trips") == Counter(
        [
            (1, None, None, "2023-01"),
            (None, None, None, "2023-01"),
            (1, Decimal("2.50"), Decimal("1.75"), "2024-01"),
        ]
    )


def test_parquet_months_are_read_by_their_types(landing: Path) -> None:
    seconds = pa.array([1672912800, 1672912800, 1672912800]).cast(pa.timestamp("s")).cast(pa.timestamp("us"))
    table = pa.table(
        {
            "VendorID": pa.array([1, 2, 2], pa.int32()),
            "lpep_pickup_datetime": seconds,
            "lpep_dropoff_datetime": pa.array([1672913400] * 3).cast(pa.timestamp("s")).cast(pa.timestamp("us")),
            "PULocationID": [7, 7, 7],
            "DOLocationID": [8, 8, 8],
            "passenger_count": [1.0, None, 1.5],
            "trip_distance": [2.6299999999999999, 0.1 + 0.2, 1.0],
            "fare_amount": [10.0, 3.0, 3.0],
            "tip_amount": [1.0, 1.0, 1.0],
            "total_amount": [12.36, 1.1, 1.1],
            "ehail_fee": pa.nulls(3),
        }
    )
    pq.write_table(table, landing / "green_tripdata_2023-01.parquet")
    con = recompute(landing)
    columns = "vendor_id, passenger_count, trip_distance, total_amount, ehail_fee, congestion_surcharge"
    assert rows(con, f"SELECT {columns} FROM raw.green_trips") == Counter(
        [
            (1, 1, Decimal("2.63"), Decimal("12.36"), None, None),
            (2, None, Decimal("0.30"), Decimal("1.10"), None, None),
        ]
    )
    assert rows(con, "SELECT line, reasons[1] FROM malformed.green_trips") == Counter([(3, "malformed")])
    assert count(con, "staging.stg_green_trips") == 2
    assert count(con, "raw.yellow_trips") == 0


def test_named_files_are_those_of_a_run(landing: Path) -> None:
    land(landing, trip())
    land(landing, trip("2023-02-05 10:00:00", "2023-02-05 10:01:00"), name="yellow_tripdata_2023-02.csv")
    land(landing, trip(), name=".yellow_tripdata_2023-03.csv.partial")
    assert count(recompute(landing), "staging.stg_yellow_trips") == 2
    assert count(recompute(landing, ["landing/yellow_tripdata_2023-02.csv"]), "staging.stg_yellow_trips") == 1


@pytest.fixture
def worked(landing: Path) -> duckdb.DuckDBPyConnection:
    land(
        landing,
        trip("2023-01-05 10:00:00", "2023-01-05 10:10:00", miles="2.0", fare="10.0", tip="1.0", total="12.0"),
        trip("2023-01-05 10:59:59", "2023-01-05 11:00:00", miles="0.05", fare="3.0", tip="0.5", total="4.01"),
        trip("2023-01-05 11:00:00", "2023-01-05 11:00:50", miles="0.0", fare="0.0", tip="2.0", total="2.0"),
        trip("2023-01-06 00:00:00", "2023-01-06 01:30:00", miles="9.99", fare="30.01", tip="", total="", passengers=""),
        trip("2023-01-06 23:59:59", "2023-01-07 00:09:59", miles="1.5", fare="-3.0", tip="0.5", zones="264,264"),
    )
    return recompute(landing)


def test_staging_by_hand(worked: duckdb.DuckDBPyConnection) -> None:
    columns = "CAST(pickup_date AS VARCHAR), pickup_hour, trip_minutes, average_mph, tip_share, pickup_borough"
    money = Decimal
    assert rows(worked, f"SELECT {columns} FROM staging.stg_yellow_trips") == Counter(
        [
            ("2023-01-05", 10, money("10.00"), money("12.00"), money("0.1000"), "Queens"),
            ("2023-01-05", 10, money("0.02"), money("180.00"), money("0.1667"), "Queens"),
            ("2023-01-05", 11, money("0.83"), money("0.00"), None, "Queens"),
            ("2023-01-06", 0, money("90.00"), money("6.66"), None, "Queens"),
            ("2023-01-06", 23, money("10.00"), money("9.00"), money("-0.1667"), "Unknown"),
        ]
    )


def test_marts_by_hand(worked: duckdb.DuckDBPyConnection) -> None:
    money = Decimal
    daily = "SELECT * REPLACE (CAST(pickup_date AS VARCHAR) AS pickup_date) FROM marts.fct_daily_trips"
    assert rows(worked, daily) == Counter(
        [
            # tip shares 0.1000 and 0.1667: 0.13335 is 0.1334
            ("2023-01-05", 3, 3, money("2.05"), money("18.01"), money("4.33"), money("0.1334")),
            # fares 30.01 and -3.00: 13.505 is 13.51
            ("2023-01-06", 2, 1, money("11.49"), money("12.00"), money("13.51"), money("-0.1667")),
        ]
    )
    hourly = "SELECT * REPLACE (CAST(pickup_date AS VARCHAR) AS pickup_date) FROM marts.fct_hourly_revenue"
    assert rows(worked, hourly) == Counter(
        [
            ("2023-01-05", 10, 2, money("16.01"), money("8.01")),
            ("2023-01-05", 11, 1, money("2.00"), money("2.00")),
            ("2023-01-06", 0, 1, money("0.00"), money("0.00")),
            ("2023-01-06", 23, 1, money("12.00"), money("12.00")),
        ]
    )
    times = ", ".join(f"CAST({time} AS VARCHAR)[:19] AS {time}" for time in ("first_pickup", "last_pickup"))
    routes = f"SELECT * EXCLUDE (first_pickup, last_pickup), {times} FROM marts.fct_trip_distance_stats"
    assert rows(worked, routes) == Counter(
        [
            (
                7,
                8,
                "Astoria",
                "Astoria",
                4,
                money("3.0100"),  # 12.04 miles
                money("1.0250"),  # between 0.05 and 2.00
                money("8.7915"),  # 2.00 + 0.85 * 7.99
                money("25.21"),  # 100.85 minutes
                money("3.57"),  # 43.01 for 12.04 miles: the trip without miles has no say
                "2023-01-05 10:00:00",
                "2023-01-06 00:00:00",
            ),
            (
                264,
                264,
                "N/A",
                "N/A",
                1,
                money("1.5000"),
                money("1.5000"),
                money("1.5000"),
                money("10.00"),
                money("-2.00"),
                "2023-01-06 23:59:59",
                "2023-01-06 23:59:59",
            ),
        ]
    )


def test_the_types_are_declared(worked: duckdb.DuckDBPyConnection) -> None:
    def types(table: str) -> dict[str, str]:
        return {name: kind for name, kind, *_ in worked.execute(f"DESCRIBE {table}").fetchall()}

    assert types("raw.yellow_trips")["pickup_datetime"] == "TIMESTAMP WITH TIME ZONE"
    assert types("marts.fct_green_daily_trips") == types("marts.fct_daily_trips")
    assert types("marts.fct_daily_trips") == {
        "pickup_date": "DATE",
        "trips": "BIGINT",
        "passengers": "BIGINT",
        "miles": "DECIMAL(18,2)",
        "revenue": "DECIMAL(18,2)",
        "average_fare": "DECIMAL(12,2)",
        "average_tip_share": "DECIMAL(16,4)",
    }
    assert types("marts.fct_trip_distance_stats")["p95_miles"] == "DECIMAL(12,4)"
