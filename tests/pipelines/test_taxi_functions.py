"""The taxi tables as plain functions: a few trips in, values worked out by hand out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from icefield.declare import ByKey, Column, Files, Full, parse_columns
from icefield.project import load_functions, open_project
from icefield.project.project import Functions
from icefield.testing import assert_incremental

if TYPE_CHECKING:
    from icefield.graph import Graph

PROJECT = Path(__file__).parents[2] / "pipelines" / "taxi"
pytestmark = pytest.mark.spark
NOON = datetime(2023, 3, 1, 12, tzinfo=UTC)
SERVICES = {"yellow": "fct_", "green": "fct_green_"}
MARTS = ("daily_trips", "hourly_revenue", "trip_distance_stats")
TRIP = [
    "vendor_id",
    "pickup_datetime",
    "dropoff_datetime",
    "passenger_count",
    "trip_distance",
    "rate_code_id",
    "store_and_fwd_flag",
    "pickup_location_id",
    "dropoff_location_id",
    "payment_type",
    "fare_amount",
    "extra",
    "mta_tax",
    "tip_amount",
    "tolls_amount",
    "improvement_surcharge",
    "total_amount",
    "congestion_surcharge",
]
OWN = {"yellow": ["airport_fee"], "green": ["trip_type", "ehail_fee"]}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    running = SparkSession.getActiveSession()
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.codegen.wholeStage", "false")  # a handful of rows is not worth compiling for
        .getOrCreate()
    )
    yield session
    if running is None:
        session.stop()


@pytest.fixture(scope="module")
def graph() -> Graph:
    return open_project(PROJECT).graph


@pytest.fixture(scope="module")
def functions() -> Functions:
    return load_functions(open_project(PROJECT))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def rows(frame: DataFrame, *columns: str) -> Counter[tuple[Any, ...]]:
    """The rows as a multiset; times come back as UTC whatever zone the machine is in."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in frame.select(*columns or frame.columns).collect():
        found[tuple(v.astimezone(UTC) if isinstance(v, datetime) else v for v in row)] += 1
    return found


def contract(frame: DataFrame) -> list[tuple[str, str]]:
    ddl = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in frame.schema.fields)
    return names_and_types(parse_columns(ddl))


def names_and_types(columns: tuple[Column, ...] | None) -> list[tuple[str, str]]:
    return [(column.name, column.type) for column in columns or ()]


def trip(
    begin: str | None = "2023-01-05 10:00:00",
    end: str | None = "2023-01-05 10:10:00",
    *,
    miles: str | None = "2.00",
    zones: tuple[int | None, int | None] = (7, 8),
    fare: str | None = "10.00",
    tip: str | None = "1.00",
    total: str | None = "12.00",
    **other: Any,
) -> dict[str, Any]:
    """A trip as raw has it."""
    amounts = {"trip_distance": miles, "fare_amount": fare, "tip_amount": tip, "total_amount": total}
    return {
        "vendor_id": 2,
        "pickup_datetime": begin and at(begin),
        "dropoff_datetime": end and at(end),
        "passenger_count": 1,
        "pickup_location_id": zones[0],
        "dropoff_location_id": zones[1],
        **{column: amount and Decimal(amount) for column, amount in amounts.items()},
        "source_month": "2023-01",
        "source_file": "landing/yellow_tripdata_2023-01.parquet",
        "ingested_at": NOON,
        **other,
    }


@pytest.fixture(scope="module")
def landed(spark: SparkSession, graph: Graph) -> Any:
    """Trips as a frame with the columns that a service's raw table has."""

    def frame(*trips: dict[str, Any], service: str = "yellow", more: str = "") -> DataFrame:
        source = graph[f"raw.{service}_trips"].source
        assert source is not None
        columns = {column.name: column.type for column in source.columns if column.name != "source_line"}
        schema = ", ".join([*(f"{name} {kind}" for name, kind in columns.items()), *([more] if more else [])])
        names = [*columns, *([more.split()[0]] if more else [])]
        return spark.createDataFrame([tuple(trip.get(name) for name in names) for trip in trips], schema)

    return frame


@pytest.fixture(scope="module")
def zones(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [
            (1, "EWR", "Newark Airport", "EWR"),
            (7, "Queens", "Astoria", "Boro Zone"),
            (8, "Queens", "Astoria", "Boro Zone"),
            (264, "Unknown", "N/A", "N/A"),
            (265, "N/A", "Outside of NYC", "N/A"),
        ],
        "location_id INT, borough STRING, zone STRING, service_zone STRING",
    )


@pytest.fixture(scope="module")
def stage(functions: Functions, landed: Any, zones: DataFrame) -> Any:
    def staged(*trips: dict[str, Any], service: str = "yellow", more: str = "") -> DataFrame:
        return functions[f"staging.stg_{service}_trips"](landed(*trips, service=service, more=more), zones)

    return staged


TRIPS = (
    trip("2023-01-05 10:00:00", "2023-01-05 10:10:00", miles="2.00", fare="10.00", tip="1.00", total="12.00"),
    trip("2023-01-05 10:59:59", "2023-01-05 11:00:00", miles="0.05", fare="3.00", tip="0.50", total="4.01"),
    trip("2023-01-05 11:00:00", "2023-01-05 11:00:50", miles="0.00", fare="0.00", tip="2.00", total="2.00"),
    trip("2023-01-06 00:00:00", "2023-01-06 01:30:00", miles="9.99", fare="30.01", tip=None, total=None),
    trip("2023-01-06 23:59:59", "2023-01-07 00:09:59", miles="1.50", fare="-3.00", tip="0.50", zones=(264, 264)),
)


@pytest.fixture(scope="module")
def built(functions: Functions, stage: Any, zones: DataFrame) -> dict[str, DataFrame]:
    found: dict[str, DataFrame] = {}
    for service, mart in SERVICES.items():
        trips = found[f"staging.stg_{service}_trips"] = stage(*TRIPS, service=service).cache()
        for name in MARTS:
            inputs = (trips, zones) if name == "trip_distance_stats" else (trips,)
            found[f"marts.{mart}{name}"] = functions[f"marts.{mart}{name}"](*inputs).cache()
    return found


def test_both_services_have_the_same_tables(graph: Graph) -> None:
    expected = {"raw.taxi_zones"}
    for service, mart in SERVICES.items():
        expected |= {f"raw.{service}_trips", f"staging.stg_{service}_trips", *(f"marts.{mart}{name}" for name in MARTS)}
    assert set(graph.order) == expected
    assert all(graph[name].comment for name in graph.order)
    assert all(graph[name].schema in graph[name].tags for name in graph.order)


def test_every_table_of_a_service_is_refreshed_by_key(graph: Graph) -> None:
    keys = {
        "raw.{}_trips": ("source_month",),
        "staging.stg_{}_trips": ("source_month",),
        "daily_trips": ("pickup_date",),
        "hourly_revenue": ("pickup_date", "pickup_hour"),
        "trip_distance_stats": ("pickup_location_id", "dropoff_location_id"),
    }
    for service, mart in SERVICES.items():
        for name, key in keys.items():
            node = graph[name.format(service) if "." in name else f"marts.{mart}{name}"]
            assert isinstance(node.refresh, ByKey), node.name
            assert node.keys == key, node.name
    assert isinstance(graph["raw.taxi_zones"].refresh, Full)


@pytest.mark.parametrize("service", SERVICES)
def test_raw_has_the_columns_of_the_contract_under_all_their_names(graph: Graph, service: str) -> None:
    node = graph[f"raw.{service}_trips"]
    source = node.source
    assert isinstance(source, Files)
    assert source.path == f"landing/{service}_tripdata_{{source_month}}.*"
    assert source.new_columns == "add"
    assert node.partitioned_by == ("months(pickup_datetime)",)
    provided = ["source_month", "source_file", "source_line", "ingested_at"]
    assert [column.name for column in source.columns] == [*TRIP, *OWN[service], *provided]
    assert source.aliases == {
        "vendor_id": ("VendorID",),
        "pickup_datetime": ("tpep_pickup_datetime", "lpep_pickup_datetime"),
        "dropoff_datetime": ("tpep_dropoff_datetime", "lpep_dropoff_datetime"),
        "rate_code_id": ("RatecodeID",),
        "pickup_location_id": ("PULocationID",),
        "dropoff_location_id": ("DOLocationID",),
    }


@pytest.mark.parametrize("service", SERVICES)
def test_staging_rejects_what_the_contract_says_and_nothing_else(graph: Graph, service: str) -> None:
    node = graph[f"staging.stg_{service}_trips"]
    assert [check.name for check in node.row_checks] == [
        "pickup in the file's month",
        "dropoff after pickup",
        "trip_distance is between 0 and 200",
        "total is not negative",
        "zones are known",
    ]
    assert {check.otherwise for check in node.row_checks} == {"quarantine"}
    assert node.table_checks == ()


def test_every_staging_and_mart_function_gives_exactly_its_contract(built: dict[str, DataFrame], graph: Graph) -> None:
    for name, frame in built.items():
        assert contract(frame) == names_and_types(graph[name].columns), name


def test_the_marts_have_the_columns_of_the_contract(graph: Graph) -> None:
    columns = {
        "daily_trips": "pickup_date trips passengers miles revenue average_fare average_tip_share",
        "hourly_revenue": "pickup_date pickup_hour trips revenue revenue_per_trip",
        "trip_distance_stats": (
            "pickup_location_id dropoff_location_id pickup_zone dropoff_zone trips average_miles median_miles "
            "p95_miles average_minutes average_fare_per_mile first_pickup last_pickup"
        ),
    }
    for mart in SERVICES.values():
        for name, expected in columns.items():
            assert [column.name for column in graph[f"marts.{mart}{name}"].columns or ()] == expected.split()


@pytest.mark.parametrize("service", SERVICES)
def test_raw_is_what_landed_with_when_and_where(
    spark: SparkSession, functions: Functions, graph: Graph, service: str
) -> None:
    source = graph[f"raw.{service}_trips"].source
    assert source is not None
    schema = ", ".join(f"{column.name} {column.type}" for column in source.columns)
    arrived = spark.createDataFrame([(None,) * len(source.columns)], schema)
    found = functions[f"raw.{service}_trips"](arrived)
    assert found.columns == [*TRIP, *OWN[service], "source_month", "source_file", "ingested_at"]


def test_zones_are_what_the_file_says(spark: SparkSession, functions: Functions) -> None:
    schema = (
        "location_id INT, borough STRING, zone STRING, service_zone STRING, source_file STRING, source_line BIGINT, "
        "ingested_at TIMESTAMP"
    )
    arrived = spark.createDataFrame([(265, "N/A", "Outside of NYC", "N/A", "x.csv", 266, NOON)], schema)
    assert rows(functions["raw.taxi_zones"](arrived)) == Counter([(265, "N/A", "Outside of NYC", "N/A")])


def test_staging_says_what_can_be_said_of_a_trip_alone(built: dict[str, DataFrame]) -> None:
    columns = ("pickup_date", "pickup_hour", "trip_minutes", "average_mph", "tip_share", "pickup_borough")
    fifth, sixth = date(2023, 1, 5), date(2023, 1, 6)
    for service in SERVICES:
        assert rows(built[f"staging.stg_{service}_trips"], *columns, "dropoff_borough") == Counter(
            [
                (fifth, 10, Decimal("10.00"), Decimal("12.00"), Decimal("0.1000"), "Queens", "Queens"),
                (fifth, 10, Decimal("0.02"), Decimal("180.00"), Decimal("0.1667"), "Queens", "Queens"),
                (fifth, 11, Decimal("0.83"), Decimal("0.00"), None, "Queens", "Queens"),
                (sixth, 0, Decimal("90.00"), Decimal("6.66"), None, "Queens", "Queens"),
                (sixth, 23, Decimal("10.00"), Decimal("9.00"), Decimal("-0.1667"), "Unknown", "Unknown"),
            ]
        )


def test_equal_trips_are_one_wherever_they_stood(stage: Any) -> None:
    elsewhere = trip(source_file="landing/yellow_tripdata_2023-01.csv", ingested_at=at("2023-04-01 00:00:00"))
    assert stage(trip(), trip(), elsewhere).count() == 1
    assert stage(trip(), trip(tip="1.01"), trip(vendor_id=None), trip(vendor_id=None)).count() == 3
    assert stage(trip(), trip(source_month="2023-02")).count() == 2


def test_a_column_that_nobody_declared_tells_trips_apart_but_is_not_staged(stage: Any, graph: Graph) -> None:
    new = "cbd_congestion_fee DOUBLE"
    staged = stage(trip(cbd_congestion_fee=0.75), trip(cbd_congestion_fee=0.0), trip(cbd_congestion_fee=0.0), more=new)
    assert staged.count() == 2
    assert contract(staged) == names_and_types(graph["staging.stg_yellow_trips"].columns)


def test_absurd_values_are_computed_and_not_an_error(stage: Any) -> None:
    """Rows are computed before they are checked, and one absurd row must not end a run."""
    most = "9999999999.99"
    staged = stage(
        trip("2023-01-05 10:00:00", "2023-01-05 10:00:01", miles=most, tip=most, fare="0.01"),
        trip("0001-01-01 00:00:00", "9999-12-31 23:59:59", miles=f"-{most}", tip=f"-{most}", fare="0.01"),
        trip("2023-01-05 10:00:00", "2023-01-05 10:00:00"),
        trip(None, None, miles=None, fare=None),
    )
    assert rows(staged, "trip_minutes", "average_mph", "tip_share") == Counter(
        [
            (Decimal("0.02"), Decimal("35999999999964.00"), Decimal("999999999999.0000")),
            (Decimal("5258964959.98"), Decimal("-114.09"), Decimal("-999999999999.0000")),
            (Decimal("0.00"), None, Decimal("0.1000")),
            (None, None, None),
        ]
    )


#: A trip, and what it fails.
EDGES: list[tuple[dict[str, Any], list[str]]] = [
    (trip("2023-01-01 00:00:00"), []),
    (trip("2023-01-31 23:59:59", "2023-02-01 00:10:00"), []),
    (trip("2022-12-31 23:59:59", "2023-01-01 00:10:00"), ["pickup in the file's month"]),
    (trip("2023-02-01 00:00:00", "2023-02-01 00:10:00"), ["pickup in the file's month"]),
    (trip(end="2023-01-05 10:00:00"), ["dropoff after pickup"]),
    (trip(end="2023-01-05 09:59:59"), ["dropoff after pickup"]),
    (trip(end=None), ["dropoff after pickup"]),
    (trip(None), ["pickup in the file's month", "dropoff after pickup"]),
    (trip(miles="0.00"), []),
    (trip(miles="200.00"), []),
    (trip(miles="200.01"), ["trip_distance is between 0 and 200"]),
    (trip(miles="-0.01"), ["trip_distance is between 0 and 200"]),
    (trip(miles=None, total=None), []),
    (trip(total="0.00"), []),
    (trip(total="-0.01"), ["total is not negative"]),
    (trip(zones=(264, 265)), []),
    (trip(zones=(7, 9)), ["zones are known"]),
    (trip(zones=(0, 7)), ["zones are known"]),
    (trip(zones=(None, 7)), ["zones are known"]),
]


def test_checks_at_their_edges(stage: Any, graph: Graph) -> None:
    """As a run decides it: a predicate fails only where it is FALSE."""
    checks = graph["staging.stg_yellow_trips"].row_checks
    staged = stage(*({**row, "vendor_id": number} for number, (row, _) in enumerate(EDGES)))
    failed = staged.selectExpr("vendor_id", *(f"NOT coalesce({check.predicate}, true)" for check in checks)).collect()
    found = {row[0]: [check.name for check, fails in zip(checks, row[1:], strict=True) if fails] for row in failed}
    assert found == {number: expected for number, (_, expected) in enumerate(EDGES)}


def test_days_are_summed_up(built: dict[str, DataFrame]) -> None:
    for mart in SERVICES.values():
        assert rows(built[f"marts.{mart}daily_trips"]) == Counter(
            [
                # tip shares 0.1000 and 0.1667: 0.13335 is 0.1334
                (date(2023, 1, 5), 3, 3, Decimal("2.05"), Decimal("18.01"), Decimal("4.33"), Decimal("0.1334")),
                # fares 30.01 and -3.00: 13.505 is 13.51
                (date(2023, 1, 6), 2, 2, Decimal("11.49"), Decimal("12.00"), Decimal("13.51"), Decimal("-0.1667")),
            ]
        )


def test_hours_are_summed_up(built: dict[str, DataFrame]) -> None:
    for mart in SERVICES.values():
        assert rows(built[f"marts.{mart}hourly_revenue"]) == Counter(
            [
                (date(2023, 1, 5), 10, 2, Decimal("16.01"), Decimal("8.01")),
                (date(2023, 1, 5), 11, 1, Decimal("2.00"), Decimal("2.00")),
                (date(2023, 1, 6), 0, 1, Decimal("0.00"), Decimal("0.00")),
                (date(2023, 1, 6), 23, 1, Decimal("12.00"), Decimal("12.00")),
            ]
        )


def test_routes_are_summed_up(built: dict[str, DataFrame]) -> None:
    for mart in SERVICES.values():
        assert rows(built[f"marts.{mart}trip_distance_stats"]) == Counter(
            [
                (
                    7,
                    8,
                    "Astoria",
                    "Astoria",
                    4,
                    Decimal("3.0100"),  # 12.04 miles
                    Decimal("1.0250"),  # between 0.05 and 2.00
                    Decimal("8.7915"),  # 2.00 + 0.85 * 7.99
                    Decimal("25.21"),  # 100.85 minutes
                    Decimal("3.57"),  # 43.01 for 12.04 miles: the trip without miles has no say
                    at("2023-01-05 10:00:00"),
                    at("2023-01-06 00:00:00"),
                ),
                (
                    264,
                    264,
                    "N/A",
                    "N/A",
                    1,
                    Decimal("1.5000"),
                    Decimal("1.5000"),
                    Decimal("1.5000"),
                    Decimal("10.00"),
                    Decimal("-2.00"),
                    at("2023-01-06 23:59:59"),
                    at("2023-01-06 23:59:59"),
                ),
            ]
        )


def percentile(hundredths: list[int], twentieths: int) -> Decimal:
    """Exactly, with integers: hundredths of a mile in, miles with four decimals out."""
    ordered = sorted(hundredths)
    low, rest = divmod(twentieths * (len(ordered) - 1), 20)
    step = ordered[min(low + 1, len(ordered) - 1)] - ordered[low]
    return Decimal(ordered[low] * 100 + rest * step * 5).scaleb(-4)


def test_percentiles_are_exact(spark: SparkSession, functions: Functions, zones: DataFrame) -> None:
    routes = {
        count: [number * number * 7919 % 20_001 for number in range(1, count + 1)] for count in (1, 2, 20, 21, 41, 117)
    }
    schema = (
        "pickup_location_id INT, dropoff_location_id INT, trip_distance DECIMAL(12,2), trip_minutes DECIMAL(12,2), "
        "fare_amount DECIMAL(12,2), pickup_datetime TIMESTAMP"
    )
    one = Decimal("1.00")
    trips = [(7, count, Decimal(far).scaleb(-2), one, one, NOON) for count, miles in routes.items() for far in miles]
    found = functions["marts.fct_trip_distance_stats"](spark.createDataFrame(trips, schema), zones)
    assert rows(found, "trips", "median_miles", "p95_miles") == Counter(
        (count, percentile(miles, 10), percentile(miles, 19)) for count, miles in routes.items()
    )


def test_what_nobody_recorded_is_empty_and_sums_are_not(functions: Functions, stage: Any, zones: DataFrame) -> None:
    unknown = trip(miles=None, fare=None, tip=None, total=None, passenger_count=None)
    trips = stage(unknown)
    zero = Decimal("0.00")
    assert rows(functions["marts.fct_daily_trips"](trips)) == Counter(
        [(date(2023, 1, 5), 1, 0, zero, zero, None, None)]
    )
    columns = ("trips", "average_miles", "median_miles", "p95_miles", "average_minutes", "average_fare_per_mile")
    routes = functions["marts.fct_trip_distance_stats"](trips, zones)
    assert rows(routes, *columns) == Counter([(1, None, None, None, Decimal("10.00"), None)])


def test_trips_and_revenue_agree_in_every_mart(built: dict[str, DataFrame], graph: Graph) -> None:
    for mart in SERVICES.values():
        checks = [check for check in graph[f"marts.{mart}daily_trips"].table_checks if hasattr(check, "amounts")]
        assert [check.name for check in checks] == ["every trip is in every mart", "revenue"]
        for check, expected in zip(checks, (5, Decimal("30.01")), strict=True):
            amounts = {
                name: built[name].selectExpr(f"{text} AS amount").first()["amount"]
                for name, text in check.amounts.items()
            }
            assert set(amounts.values()) == {expected}, amounts


def test_every_promise_holds_for_months_in_any_order(
    functions: Functions, landed: Any, stage: Any, zones: DataFrame
) -> None:
    nothing = zones.limit(0)
    later = [
        trip("2023-02-05 10:00:00", "2023-02-05 10:05:00", miles=f"{miles}.10", source_month="2023-02")
        for miles in range(3)
    ]
    months = [TRIPS, [*later, later[0]]]
    raw, staged = [landed(*trips) for trips in months], [stage(*trips) for trips in months]
    lookups = [zones, nothing]
    for name in ("daily_trips", "hourly_revenue"):
        assert_incremental(functions[f"marts.fct_{name}"], staged)
    for name, trips in (("staging.stg_yellow_trips", raw), ("marts.fct_trip_distance_stats", staged)):
        batches = [{"trips": part, "zones": lookup} for part, lookup in zip(trips, lookups, strict=True)]
        assert_incremental(functions[name], batches)
