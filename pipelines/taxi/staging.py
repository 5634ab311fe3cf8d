"""Staging: trips that can be believed, each once, with what can be said of a trip alone."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from raw import Fields

from icefield import between, by_key, expect, lookup, table

SECONDS_A_MINUTE, SECONDS_AN_HOUR = 60, 3600
PROVENANCE = ["source_file", "ingested_at"]

MINUTES, MPH, SHARE = "DECIMAL(12,2)", "DECIMAL(16,2)", "DECIMAL(16,4)"

DERIVED = f"""source_month STRING COMMENT 'the month of the file, such as 2023-01',
              pickup_date DATE COMMENT 'the day of the pickup',
              pickup_hour INT COMMENT 'the hour of the pickup, 0 to 23',
              trip_minutes {MINUTES} COMMENT 'from pickup to dropoff, rounded half up',
              average_mph {MPH} COMMENT 'miles an hour over the whole trip, rounded half up',
              tip_share {SHARE} COMMENT 'tip_amount / fare_amount, rounded half up; empty without a fare',
              pickup_borough STRING, dropoff_borough STRING"""


def staged_trips(colour: str, fields: Fields) -> None:
    """Declare `staging.stg_<colour>_trips`, and its quarantine by what the trips fail."""
    recorded = list(fields)

    @table(
        f"staging.stg_{colour}_trips",
        inputs={"trips": f"raw.{colour}_trips", "zones": lookup("raw.taxi_zones")},
        refresh=by_key("source_month"),
        columns=", ".join([*(field.ddl(name) for name, field in fields.items()), DERIVED]),
        partitioned_by=["months(pickup_date)"],
        checks=[
            expect("pickup in the file's month", "date_format(pickup_datetime, 'yyyy-MM') <=> source_month"),
            expect("dropoff after pickup", "(dropoff_datetime > pickup_datetime) IS TRUE"),
            between("trip_distance", 0, 200),
            expect("total is not negative", "total_amount >= 0"),
            expect("zones are known", "pickup_borough IS NOT NULL AND dropoff_borough IS NOT NULL"),
        ],
        otherwise="quarantine",
        tags=["staging", colour],
    )
    def staged(trips: DataFrame, zones: DataFrame) -> DataFrame:
        """The service's trips, checked; trips that are equal in all that was recorded are one trip."""
        once = trips.drop(*PROVENANCE).distinct()
        boroughs = [zones.select(*borough_of(end)) for end in ("pickup", "dropoff")]
        located = once.join(boroughs[0], "pickup_location_id", "left").join(boroughs[1], "dropoff_location_id", "left")
        seconds = (F.unix_timestamp("dropoff_datetime") - F.unix_timestamp("pickup_datetime")).cast("DECIMAL(18,0)")
        return located.select(
            *recorded,
            "source_month",
            F.to_date("pickup_datetime").alias("pickup_date"),
            F.hour("pickup_datetime").alias("pickup_hour"),
            (seconds / SECONDS_A_MINUTE).cast(MINUTES).alias("trip_minutes"),
            F.try_divide(F.col("trip_distance") * SECONDS_AN_HOUR, seconds).cast(MPH).alias("average_mph"),
            F.try_divide("tip_amount", "fare_amount").cast(SHARE).alias("tip_share"),
            "pickup_borough",
            "dropoff_borough",
        )


def borough_of(end: str) -> tuple[Column, Column]:
    """The zones' columns under the names that they have at one end of a trip."""
    return F.col("location_id").alias(f"{end}_location_id"), F.col("borough").alias(f"{end}_borough")
