"""Metrics: averages of a minute, and how each sensor is doing."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from icefield import accumulate, by_key, setting, table, unique

#: A reading that the broker received so many seconds after the end of its minute, or later, is late.
GRACE_SECONDS = setting("grace_seconds", 30)


@table(
    "metrics.sensor_minutes",
    refresh=by_key("sensor_id", minute="date_trunc('MINUTE', event_time)"),
    partitioned_by=["days(minute)"],
    checks=[unique("sensor_id", "minute")],
)
def sensor_minutes(sensor_readings: DataFrame) -> DataFrame:
    """One row a sensor and minute. A late reading corrects its minute, however late; one sent again counts once."""
    sent_again = Window.partitionBy("sensor_id", "event_time").orderBy("topic", "partition", "offset")
    minute = F.date_trunc("MINUTE", "event_time")
    late = F.col("kafka_timestamp") >= minute + F.expr(f"INTERVAL {60 + GRACE_SECONDS} SECONDS")
    return (
        sensor_readings.withColumn("nth", F.row_number().over(sent_again))
        .where("nth = 1")
        .groupBy("sensor_id", minute.alias("minute"))
        .agg(
            F.count("*").alias("readings"),
            F.avg(F.col("temperature").cast("DECIMAL(9,4)")).cast("DOUBLE").alias("average"),
            F.min("temperature").alias("minimum"),
            F.max("temperature").alias("maximum"),
            F.min("event_time").alias("first_event_time"),
            F.max("event_time").alias("last_event_time"),
            F.max(F.struct("event_time", "temperature")).getField("temperature").alias("last_temperature"),
            F.count_if(late).alias("late_readings"),
        )
    )


def last_reading(measures: DataFrame) -> DataFrame:
    """The newest reading, beside how many there were."""
    return measures.select(
        "sensor_id",
        F.col("last.last_event_time").alias("last_event_time"),
        F.col("last.last_temperature").alias("last_temperature"),
        "readings",
        "late_readings",
    )


@table(
    "metrics.sensor_status",
    refresh=accumulate("sensor_id", readings="sum", late_readings="sum", last="max", finish=last_reading),
    checks=[unique("sensor_id")],
)
def sensor_status(sensor_minutes: DataFrame) -> DataFrame:
    """One row a sensor: its last reading, readings in all, late readings."""
    return sensor_minutes.groupBy("sensor_id").agg(
        F.sum("readings").alias("readings"),
        F.sum("late_readings").alias("late_readings"),
        F.max(F.struct("last_event_time", "last_temperature")).alias("last"),
    )
