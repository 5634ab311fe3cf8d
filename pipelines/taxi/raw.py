"""Raw: the taxi zones, and the months of a service as they arrive, under one set of names and types."""

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame

from icefield import by_key, expect_table, files, full, not_null, table, unique


class Field(NamedTuple):
    """A column: its type, what it means, and the names that it has had in the TLC's files."""

    type: str
    comment: str
    former: tuple[str, ...] = ()

    def ddl(self, name: str) -> str:
        """The column as Spark DDL; comments have no quotes."""
        return f"{name} {self.type} COMMENT '{self.comment}'"


Fields = Mapping[str, Field]

MONEY = "DECIMAL(12,2)"  # sums of DECIMALs are exact, in any order
MILES = "DECIMAL(12,2)"

#: What both services record. Names are matched whatever their upper and lower case.
TRIP: Fields = {
    "vendor_id": Field("INT", "who provided the record: 1 Creative Mobile, 2 Curb, 6 Myle, 7 Helix", ("VendorID",)),
    "pickup_datetime": Field(
        "TIMESTAMP",
        "when the meter was engaged; New York time, as it was on the clock",
        ("tpep_pickup_datetime", "lpep_pickup_datetime"),
    ),
    "dropoff_datetime": Field(
        "TIMESTAMP",
        "when the meter was disengaged; New York time",
        ("tpep_dropoff_datetime", "lpep_dropoff_datetime"),
    ),
    "passenger_count": Field("INT", "as the driver entered it"),
    "trip_distance": Field(MILES, "miles by the taximeter"),
    "rate_code_id": Field(
        "INT",
        "1 standard, 2 JFK, 3 Newark, 4 Nassau or Westchester, 5 negotiated, 6 group, 99 unknown",
        ("RatecodeID",),
    ),
    "store_and_fwd_flag": Field("STRING", "Y: kept in the vehicle first, without a connection"),
    "pickup_location_id": Field("INT", "zone of the pickup", ("PULocationID",)),
    "dropoff_location_id": Field("INT", "zone of the dropoff", ("DOLocationID",)),
    "payment_type": Field("INT", "0 flex fare, 1 card, 2 cash, 3 no charge, 4 dispute, 5 unknown, 6 voided"),
    "fare_amount": Field(MONEY, "by time and distance"),
    "extra": Field(MONEY, "rush hour and overnight"),
    "mta_tax": Field(MONEY, "by the rate in use"),
    "tip_amount": Field(MONEY, "tips by card; cash tips are not recorded"),
    "tolls_amount": Field(MONEY, "all tolls of the trip"),
    "improvement_surcharge": Field(MONEY, "since 2015"),
    "total_amount": Field(MONEY, "what the passenger was charged, without cash tips"),
    "congestion_surcharge": Field(MONEY, "since 2019"),
}
YELLOW: Fields = {**TRIP, "airport_fee": Field(MONEY, "pickups at LaGuardia and JFK")}
GREEN: Fields = {
    **TRIP,
    "trip_type": Field("INT", "1 street hail, 2 dispatch"),
    "ehail_fee": Field(MONEY, "empty in all months so far"),
}


@table(
    "raw.taxi_zones",
    source=files(
        "landing/taxi_zone_lookup.csv",
        schema="""location_id INT COMMENT '264 and 265 are zones as well: unknown, and outside of the city',
                  borough STRING, zone STRING COMMENT 'not unique', service_zone STRING""",
        aliases={"location_id": ["LocationID"]},
        changed="replace",
    ),
    refresh=full(),
    checks=[
        unique("location_id"),
        not_null("location_id", "borough"),
        expect_table("all zones are there", "count(*) >= 260"),
    ],
    tags=["raw", "zones"],
)
def taxi_zones(rows: DataFrame) -> DataFrame:
    """Every taxi zone of the city with its borough; `N/A` is a text here, as in the file."""
    return rows.drop("source_file", "source_line", "ingested_at")


def landed_trips(colour: str, fields: Fields) -> None:
    """Declare `raw.<colour>_trips`: one file a month, one run a month."""

    @table(
        f"raw.{colour}_trips",
        source=files(
            f"landing/{colour}_tripdata_{{source_month}}.*",
            schema=", ".join(field.ddl(name) for name, field in fields.items()),
            aliases={name: field.former for name, field in fields.items() if field.former},
            new_columns="add",
            batch="source_month",
        ),
        refresh=by_key("source_month"),
        partitioned_by=["months(pickup_datetime)"],
        tags=["raw", colour],
    )
    def landed(rows: DataFrame) -> DataFrame:
        """Every trip as it arrived, a file of the service for each month; a month that arrives again is replaced."""
        return rows.drop("source_line")
