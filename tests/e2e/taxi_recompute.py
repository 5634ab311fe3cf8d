"""The taxi tables worked out a second time, from the landed months, by DuckDB alone: the judge of every run.

Nothing here knows Spark, icefield or the project. Money and distances are integers, in cents and hundredths of a mile,
until the end, and every average is one exact division. Where the specification leaves room, these are the readings:

- a column is known by any of its names, in upper or lower case; a file without it has NULL; other columns are not in
  the tables, but trips that differ in them are different trips;
- `1.0` is a whole number, a double is the decimal that it is nearest to, and a value that is neither makes its row
  malformed, which is then in no table;
- equal trips of one month are one trip, also if they fail a check;
- a trip without a pickup time is in no month, one without a dropoff time has no dropoff after its pickup, and one
  without a zone has no known zone; without a distance or a total nothing is said about it;
- averages are rounded half up, away from zero; what there is nothing to divide by is NULL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

MALFORMED = "malformed"
MONTH_FILE = re.compile(r"(yellow|green)_tripdata_(.+)\.(csv|parquet)")


@dataclass(frozen=True, slots=True)
class Service:
    """A service's columns in order, with their types, and the former names of some."""

    colour: str
    mart: str
    columns: dict[str, str]


FORMER = {
    "vendor_id": ("vendorid",),
    "pickup_datetime": ("tpep_pickup_datetime", "lpep_pickup_datetime"),
    "dropoff_datetime": ("tpep_dropoff_datetime", "lpep_dropoff_datetime"),
    "rate_code_id": ("ratecodeid",),
    "pickup_location_id": ("pulocationid",),
    "dropoff_location_id": ("dolocationid",),
}
COMMON = (
    "vendor_id INTEGER, pickup_datetime TIMESTAMP, dropoff_datetime TIMESTAMP, passenger_count INTEGER, trip_distance "
    "DECIMAL(12,2), rate_code_id INTEGER, store_and_fwd_flag VARCHAR, pickup_location_id INTEGER, dropoff_location_id "
    "INTEGER, payment_type INTEGER, fare_amount DECIMAL(12,2), extra DECIMAL(12,2), mta_tax DECIMAL(12,2), tip_amount "
    "DECIMAL(12,2), tolls_amount DECIMAL(12,2), improvement_surcharge DECIMAL(12,2), total_amount DECIMAL(12,2), "
    "congestion_surcharge DECIMAL(12,2)"
)


def _columns(text: str) -> dict[str, str]:
    return dict(column.split(" ") for column in text.split(", "))


SERVICES = (
    Service("yellow", "fct_", _columns(f"{COMMON}, airport_fee DECIMAL(12,2)")),
    Service("green", "fct_green_", _columns(f"{COMMON}, trip_type INTEGER, ehail_fee DECIMAL(12,2)")),
)

#: What the text of a cell must look like to mean exactly a value, and that value.
TEXTS = {
    "VARCHAR": ("TRUE", "{f}"),
    "INTEGER": (
        r"regexp_full_match({f}, '[+-]?[0-9]+(\.0*)?') AND TRY_CAST(split_part({f}, '.', 1) AS INTEGER) IS NOT NULL",
        "TRY_CAST(split_part({f}, '.', 1) AS INTEGER)",
    ),
    "DECIMAL(12,2)": (
        r"regexp_full_match({f}, '[+-]?(0*[0-9]{{1,10}}(\.[0-9]{{0,2}}0*)?|\.[0-9]{{1,2}}0*)')",
        "TRY_CAST({f} AS DECIMAL(12,2))",
    ),
    "TIMESTAMP": (
        r"regexp_full_match({f}, '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}[ T][0-9]{{2}}(:[0-9]{{2}}){{2}}(\.[0-9]{{1,6}})?')"
        " AND TRY_CAST({f} AS TIMESTAMP) IS NOT NULL AND {f}[12:13] < '24'",
        "TRY_CAST({f} AS TIMESTAMP)",
    ),
}
#: The same for a double: a whole number, and hundredths up to the noise of the binary number.
DOUBLES = {
    "INTEGER": ("{f} = trunc({f}) AND abs({f}) < 2147483648", "TRY_CAST({f} AS INTEGER)"),
    "DECIMAL(12,2)": (
        "abs({f} * 100 - round({f} * 100)) < 0.000001 AND abs({f}) < 10000000000",
        "CAST(TRY_CAST(round({f} * 100) AS BIGINT) * CAST(0.01 AS DECIMAL(3,2)) AS DECIMAL(12,2))",
    ),
}

REASONS = (
    ("pickup in the file''s month", "strftime(pickup, '%Y-%m') IS DISTINCT FROM source_month"),
    ("dropoff after pickup", "(dropoff > pickup) IS NOT TRUE"),
    ("trip_distance is between 0 and 200", "hundredths < 0 OR hundredths > 20000"),
    ("total is not negative", "total_amount < 0"),
    ("zones are known", "pickup_borough IS NULL OR dropoff_borough IS NULL"),
)

MACROS = """
CREATE MACRO half_up(part, whole) AS CASE WHEN whole <> 0 THEN sign(part) * sign(whole)
    * ((2 * abs(CAST(part AS HUGEINT)) + abs(CAST(whole AS HUGEINT))) // (2 * abs(CAST(whole AS HUGEINT)))) END;
CREATE MACRO two(hundredths) AS CAST(hundredths AS DECIMAL(18,0)) * CAST(0.01 AS DECIMAL(3,2));
CREATE MACRO four(parts) AS CAST(parts AS DECIMAL(18,0)) * CAST(0.0001 AS DECIMAL(5,4));
CREATE MACRO cents(amount) AS CAST(amount * 100 AS BIGINT);
-- The value at `step / steps` of the way through a sorted list, in 1/100 of its unit; `steps` divides 100.
CREATE MACRO between_two(list, step, steps) AS
    list[step * (len(list) - 1) // steps + 1] * 100
    + step * (len(list) - 1) % steps * (100 // steps)
      * (coalesce(list[step * (len(list) - 1) // steps + 2], list[step * (len(list) - 1) // steps + 1])
         - list[step * (len(list) - 1) // steps + 1]);
"""


def _landed(landing: Path, files: Sequence[str] | None) -> list[Path]:
    names = [name.removeprefix("landing/") for name in files] if files is not None else None
    visible = sorted(path for path in landing.iterdir() if not path.name.startswith((".", "_")))
    return [path for path in visible if names is None or path.name in names]


def _place(names: Sequence[str], column: str) -> int | None:
    """Which of the file's columns has this one, by any of its names."""
    known = (column, *FORMER.get(column, ()))
    return next((place for place, name in enumerate(names) if name.lower() in known), None)


def _take(con: duckdb.DuckDBPyConnection, service: Service, path: Path, month: str) -> None:
    """One month's rows in `landed`: values, whether one of them is none, and what the declared columns leave out."""
    rows, names, kinds = _csv(con, path) if path.suffix == ".csv" else _parquet(con, path)
    places = {column: _place(names, column) for column in service.columns}
    values, wrong = [], ["torn"]
    for column, declared in service.columns.items():
        place = places[column]
        if place is None:
            values.append(f"CAST(NULL AS {declared}) AS {column}")
            continue
        fits, value = _reading(f"c{place}", kinds[place], declared)
        values.append(f"{value} AS {column}")
        wrong.append(f"(c{place} IS NOT NULL AND NOT ({fits}))")
    others = ", ".join(f"CAST(c{at} AS VARCHAR)" for at in range(len(names)) if at not in places.values())
    con.execute(f"""
        INSERT INTO landed_{service.colour}
        SELECT '{month}', 'landing/{path.name}', line, {" OR ".join(wrong)}, CAST([{others}] AS VARCHAR[]),
               {", ".join(values)}
        FROM ({rows})""")


def _reading(cell: str, kind: str, declared: str) -> tuple[str, str]:
    """What makes a cell of the file a value of the declared type, and that value."""
    if kind == "TEXT":
        fits, value = TEXTS[declared]
    elif kind in ("DOUBLE", "FLOAT"):
        fits, value = DOUBLES[declared]
    else:
        fits, value = f"TRY_CAST({{f}} AS {declared}) IS NOT NULL", f"TRY_CAST({{f}} AS {declared})"
    return fits.format(f=cell), value.format(f=cell)


def _csv(con: duckdb.DuckDBPyConnection, path: Path) -> tuple[str, list[str], list[str]]:
    """A query for the lines of a file: numbers are physical, the header being line 1; CR LF and LF may be mixed."""
    text = path.read_text("utf-8")
    if '"' in text:
        raise NotImplementedError(f"{path} has quotes, which no month of trips has had")
    con.execute("CREATE OR REPLACE TEMP TABLE text AS SELECT ? AS content", [text])
    names = text.partition("\n")[0].rstrip("\r").removeprefix("\ufeff").split(",")
    cells = ", ".join(f"NULLIF(cells[{place + 1}], '') AS c{place}" for place in range(len(names)))
    query = f"""
        SELECT line, len(cells) <> {len(names)} AS torn, {cells}
        FROM (SELECT line, string_split(rtrim(text, chr(13)), ',') AS cells
              FROM (SELECT unnest(lines) AS text, unnest(range(1, len(lines) + 1)) AS line
                    FROM (SELECT string_split(content, chr(10)) AS lines FROM text))
              WHERE line > 1 AND trim(text, E' \\t\\r') <> '')"""
    return query, names, ["TEXT"] * len(names)


def _parquet(con: duckdb.DuckDBPyConnection, path: Path) -> tuple[str, list[str], list[str]]:
    described = con.execute(f"DESCRIBE SELECT * FROM read_parquet('{path}')").fetchall()
    names, kinds = [row[0] for row in described], [row[1] for row in described]
    cells = ", ".join(f'"{name}" AS c{place}' for place, name in enumerate(names))
    rows = f"read_parquet('{path}', file_row_number = true)"
    return f"SELECT file_row_number + 1 AS line, FALSE AS torn, {cells} FROM {rows}", names, kinds


def _raw(con: duckdb.DuckDBPyConnection, service: Service, files: Sequence[Path]) -> None:
    origin = "source_month VARCHAR, source_file VARCHAR, line BIGINT, malformed BOOLEAN, others VARCHAR[]"
    declared = ", ".join(f"{column} {kind}" for column, kind in service.columns.items())
    con.execute(f"CREATE TEMP TABLE landed_{service.colour} ({origin}, {declared})")
    for path in files:
        match = MONTH_FILE.fullmatch(path.name)
        if match and match[1] == service.colour:
            _take(con, service, path, match[2])
    columns = ", ".join(
        f"CAST({column} AS TIMESTAMPTZ) AS {column}" if kind == "TIMESTAMP" else column
        for column, kind in service.columns.items()
    )
    con.execute(f"""
        CREATE TABLE raw.{service.colour}_trips AS
        SELECT {columns}, source_month, source_file FROM landed_{service.colour} WHERE NOT malformed;
        CREATE TABLE malformed.{service.colour}_trips AS
        SELECT source_file, line, ['{MALFORMED}'] AS reasons FROM landed_{service.colour} WHERE malformed""")


def _staging(con: duckdb.DuckDBPyConnection, service: Service) -> None:
    """Equal trips once; what fails a check is in quarantine, with every reason."""
    columns = ", ".join(
        f"CAST({column} AS TIMESTAMPTZ) AS {column}" if kind == "TIMESTAMP" else column
        for column, kind in service.columns.items()
    )
    reasons = ", ".join(f"CASE WHEN {failed} THEN '{reason}' END" for reason, failed in REASONS)
    con.execute(f"""
        CREATE TEMP TABLE checked_{service.colour} AS
        WITH trips AS (
            SELECT DISTINCT * EXCLUDE (source_file, line, malformed) FROM landed_{service.colour} WHERE NOT malformed
        ), located AS (
            SELECT trips.*, pickup_datetime AS pickup, dropoff_datetime AS dropoff, cents(trip_distance) AS hundredths,
                   date_diff('second', pickup_datetime, dropoff_datetime) AS seconds,
                   start.borough AS pickup_borough, stop.borough AS dropoff_borough
            FROM trips LEFT JOIN raw.taxi_zones AS start ON start.location_id = pickup_location_id
            LEFT JOIN raw.taxi_zones AS stop ON stop.location_id = dropoff_location_id
        )
        SELECT {columns}, source_month,
               CAST(pickup AS DATE) AS pickup_date, CAST(date_part('hour', pickup) AS INTEGER) AS pickup_hour,
               CAST(two(half_up(seconds * 100, 60)) AS DECIMAL(12,2)) AS trip_minutes,
               CAST(two(half_up(hundredths * 3600, seconds)) AS DECIMAL(16,2)) AS average_mph,
               CAST(four(half_up(cents(tip_amount) * 10000, cents(fare_amount))) AS DECIMAL(16,4)) AS tip_share,
               pickup_borough, dropoff_borough,
               list_filter([{reasons}], lambda reason: reason IS NOT NULL) AS reasons
        FROM located""")
    name = f"stg_{service.colour}_trips"
    con.execute(f"""
        CREATE TABLE staging.{name} AS
        SELECT * EXCLUDE (reasons) FROM checked_{service.colour} WHERE len(reasons) = 0;
        CREATE TABLE quarantine.{name} AS SELECT * FROM checked_{service.colour} WHERE len(reasons) > 0""")


def _marts(con: duckdb.DuckDBPyConnection, service: Service) -> None:
    con.execute(f"""
        CREATE TABLE marts.{service.mart}daily_trips AS
        SELECT pickup_date, count(*) AS trips, CAST(coalesce(sum(passenger_count), 0) AS BIGINT) AS passengers,
               CAST(two(coalesce(sum(cents(trip_distance)), 0)) AS DECIMAL(18,2)) AS miles,
               CAST(two(coalesce(sum(cents(total_amount)), 0)) AS DECIMAL(18,2)) AS revenue,
               CAST(two(half_up(sum(cents(fare_amount)), count(fare_amount))) AS DECIMAL(12,2)) AS average_fare,
               CAST(four(half_up(sum(CAST(tip_share * 10000 AS BIGINT)), count(tip_share))) AS DECIMAL(16,4))
                   AS average_tip_share
        FROM staging.stg_{service.colour}_trips GROUP BY pickup_date;

        CREATE TABLE marts.{service.mart}hourly_revenue AS
        SELECT pickup_date, pickup_hour, count(*) AS trips,
               CAST(two(coalesce(sum(cents(total_amount)), 0)) AS DECIMAL(18,2)) AS revenue,
               CAST(two(half_up(coalesce(sum(cents(total_amount)), 0), count(*))) AS DECIMAL(12,2)) AS revenue_per_trip
        FROM staging.stg_{service.colour}_trips GROUP BY pickup_date, pickup_hour;

        CREATE TABLE marts.{service.mart}trip_distance_stats AS
        WITH routes AS (
            SELECT pickup_location_id, dropoff_location_id, count(*) AS trips,
                   half_up(sum(cents(trip_distance)) * 100, count(trip_distance)) AS average_miles,
                   list_sort(list(cents(trip_distance)) FILTER (trip_distance IS NOT NULL)) AS distances,
                   half_up(sum(cents(trip_minutes)), count(trip_minutes)) AS average_minutes,
                   half_up(sum(cents(fare_amount)) FILTER (trip_distance > 0) * 100, sum(cents(trip_distance)))
                       AS fare_per_mile,
                   min(pickup_datetime) AS first_pickup, max(pickup_datetime) AS last_pickup
            FROM staging.stg_{service.colour}_trips GROUP BY pickup_location_id, dropoff_location_id
        )
        SELECT pickup_location_id, dropoff_location_id, start.zone AS pickup_zone, stop.zone AS dropoff_zone, trips,
               CAST(four(average_miles) AS DECIMAL(12,4)) AS average_miles,
               CAST(four(between_two(distances, 1, 2)) AS DECIMAL(12,4)) AS median_miles,
               CAST(four(between_two(distances, 19, 20)) AS DECIMAL(12,4)) AS p95_miles,
               CAST(two(average_minutes) AS DECIMAL(12,2)) AS average_minutes,
               CAST(two(fare_per_mile) AS DECIMAL(18,2)) AS average_fare_per_mile, first_pickup, last_pickup
        FROM routes LEFT JOIN raw.taxi_zones AS start ON start.location_id = pickup_location_id
        LEFT JOIN raw.taxi_zones AS stop ON stop.location_id = dropoff_location_id""")


def recompute(landing: Path, files: Sequence[str] | None = None) -> duckdb.DuckDBPyConnection:
    """All tables from the landed files, or from those that are named; the zones are always taken.

    The connection has raw.taxi_zones, raw.<colour>_trips (without the volatile ingested_at), malformed.<colour>_trips
    (where the rows stood that raw cannot have), staging.stg_<colour>_trips, quarantine.stg_<colour>_trips with the
    reasons, and the marts of both services.
    """
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    for schema in ("raw", "malformed", "staging", "quarantine", "marts"):
        con.execute(f"CREATE SCHEMA {schema}")
    con.execute(MACROS)
    zones = (
        f"read_csv('{landing / 'taxi_zone_lookup.csv'}', header = true, all_varchar = true, delim = ',', quote = '\"')"
    )
    con.execute(f"""
        CREATE TABLE raw.taxi_zones AS
        SELECT CAST("LocationID" AS INTEGER) AS location_id, "Borough" AS borough, "Zone" AS zone, service_zone
        FROM {zones}""")
    taken = _landed(landing, files)
    for service in SERVICES:
        _raw(con, service, taken)
        _staging(con, service)
        _marts(con, service)
    return con
