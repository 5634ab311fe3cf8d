"""Marts: what is asked about a service, by day, by hour and by route.

Sums are of DECIMALs and so exact. Averages are one division of such sums, rounded half up to the scale of their column.
The percentiles interpolate between two trips; of distances in hundredths of a mile, four decimals hold them exactly.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from icefield import by_key, lookup, reconciles, table, unique

TOTAL = "DECIMAL(18,2)"
FARE, SHARE, FARE_PER_MILE = "DECIMAL(12,2)", "DECIMAL(16,4)", "DECIMAL(18,2)"
MILES, MINUTES = "DECIMAL(12,4)", "DECIMAL(12,2)"


def daily_trips(colour: str, mart: str) -> None:
    """Declare `marts.<mart>daily_trips`."""
    staged, daily, hourly, routes = f"staging.stg_{colour}_trips", *tables(mart)

    @table(
        daily,
        inputs={"trips": staged},
        refresh=by_key("pickup_date"),
        columns=f"""pickup_date DATE COMMENT 'the day of the pickup', trips BIGINT,
                    passengers BIGINT COMMENT 'as far as drivers entered them', miles {TOTAL},
                    revenue {TOTAL} COMMENT 'total_amount of all trips',
                    average_fare {FARE} COMMENT 'fare_amount a trip, rounded half up',
                    average_tip_share {SHARE} COMMENT 'mean of tip_share over the trips that have one'""",
        checks=[
            unique("pickup_date"),
            reconciles(
                "every trip is in every mart",
                {staged: "count(*)", daily: "sum(trips)", hourly: "sum(trips)", routes: "sum(trips)"},
            ),
            reconciles("revenue", {staged: "sum(total_amount)", daily: "sum(revenue)", hourly: "sum(revenue)"}),
        ],
        tags=["marts", colour],
    )
    def daily_trips(trips: DataFrame) -> DataFrame:
        """One row a day of pickups: trips, passengers, miles, revenue."""
        return trips.groupBy("pickup_date").agg(
            F.count("*").alias("trips"),
            total("passenger_count").alias("passengers"),
            total("trip_distance").cast(TOTAL).alias("miles"),
            total("total_amount").cast(TOTAL).alias("revenue"),
            mean("fare_amount").cast(FARE).alias("average_fare"),
            mean("tip_share").cast(SHARE).alias("average_tip_share"),
        )


def hourly_revenue(colour: str, mart: str) -> None:
    """Declare `marts.<mart>hourly_revenue`."""
    _, hourly, _ = tables(mart)

    @table(
        hourly,
        inputs={"trips": f"staging.stg_{colour}_trips"},
        refresh=by_key("pickup_date", "pickup_hour"),
        columns=f"""pickup_date DATE COMMENT 'the day of the pickup', pickup_hour INT COMMENT '0 to 23', trips BIGINT,
                    revenue {TOTAL} COMMENT 'total_amount of all trips',
                    revenue_per_trip {FARE} COMMENT 'revenue / trips, rounded half up'""",
        checks=[unique("pickup_date", "pickup_hour")],
        tags=["marts", colour],
    )
    def hourly_revenue(trips: DataFrame) -> DataFrame:
        """One row an hour in which trips began: trips and revenue."""
        return trips.groupBy("pickup_date", "pickup_hour").agg(
            F.count("*").alias("trips"),
            total("total_amount").cast(TOTAL).alias("revenue"),
            F.try_divide(total("total_amount"), F.count("*")).cast(FARE).alias("revenue_per_trip"),
        )


def trip_distance_stats(colour: str, mart: str) -> None:
    """Declare `marts.<mart>trip_distance_stats`."""
    _, _, routes = tables(mart)

    @table(
        routes,
        inputs={"trips": f"staging.stg_{colour}_trips", "zones": lookup("raw.taxi_zones")},
        refresh=by_key("pickup_location_id", "dropoff_location_id"),  # percentiles do not merge
        columns=f"""pickup_location_id INT, dropoff_location_id INT, pickup_zone STRING, dropoff_zone STRING,
                    trips BIGINT,
                    average_miles {MILES} COMMENT 'rounded half up',
                    median_miles {MILES} COMMENT 'exact; between two trips, interpolated',
                    p95_miles {MILES} COMMENT '95th percentile, exact; between two trips, interpolated',
                    average_minutes {MINUTES} COMMENT 'mean of trip_minutes, rounded half up',
                    average_fare_per_mile {FARE_PER_MILE} COMMENT
                        'fares / miles of the trips that have miles, rounded half up',
                    first_pickup TIMESTAMP, last_pickup TIMESTAMP""",
        checks=[unique("pickup_location_id", "dropoff_location_id")],
        tags=["marts", colour],
    )
    def trip_distance_stats(trips: DataFrame, zones: DataFrame) -> DataFrame:
        """One row a route, from one zone to another: how far, how long, how dear."""
        driven = F.col("trip_distance") > 0
        fare_per_mile = F.try_divide(
            F.sum(F.when(driven, F.col("fare_amount"))), F.sum(F.when(driven, F.col("trip_distance")))
        )
        routes = trips.groupBy("pickup_location_id", "dropoff_location_id").agg(
            F.count("*").alias("trips"),
            mean("trip_distance").cast(MILES).alias("average_miles"),
            F.percentile("trip_distance", 0.5).cast(MILES).alias("median_miles"),
            F.percentile("trip_distance", 0.95).cast(MILES).alias("p95_miles"),
            mean("trip_minutes").cast(MINUTES).alias("average_minutes"),
            fare_per_mile.cast(FARE_PER_MILE).alias("average_fare_per_mile"),
            F.min("pickup_datetime").alias("first_pickup"),
            F.max("pickup_datetime").alias("last_pickup"),
        )
        pickups, dropoffs = (zones.select(*zone_of(end)) for end in ("pickup", "dropoff"))
        named = routes.join(pickups, "pickup_location_id", "left").join(dropoffs, "dropoff_location_id", "left")
        return named.select(
            "pickup_location_id",
            "dropoff_location_id",
            "pickup_zone",
            "dropoff_zone",
            "trips",
            "average_miles",
            "median_miles",
            "p95_miles",
            "average_minutes",
            "average_fare_per_mile",
            "first_pickup",
            "last_pickup",
        )


def tables(mart: str) -> tuple[str, str, str]:
    """The marts of a service: by day, by hour, by route."""
    return f"marts.{mart}daily_trips", f"marts.{mart}hourly_revenue", f"marts.{mart}trip_distance_stats"


def total(column: str) -> Column:
    """The sum, 0 where there is nothing to sum."""
    return F.coalesce(F.sum(column), F.lit(0))


def mean(column: str) -> Column:
    """The mean of the trips that have a value, to many decimals: avg() of a DECIMAL rounds twice."""
    return F.try_divide(F.sum(column), F.count(column))


def zone_of(end: str) -> tuple[Column, Column]:
    """The zones' columns under the names that they have at one end of a route."""
    return F.col("location_id").alias(f"{end}_location_id"), F.col("zone").alias(f"{end}_zone")
