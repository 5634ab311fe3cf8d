"""Raw: temperatures as sensors send them, one message each."""

from pyspark.sql import DataFrame

from icefield import append, between, expect, kafka, not_null, table


@table(
    "raw.sensor_readings",
    source=kafka("sensor-readings", schema="sensor_id STRING, temperature DOUBLE, event_time TIMESTAMP"),
    refresh=append(),
    partitioned_by=["days(event_time)"],
    checks=[
        not_null("sensor_id", "temperature", "event_time"),
        between("temperature", -90, 80),
        # By the broker's clock, so that it is the same whenever the messages are read.
        expect("not from the future", "event_time <= kafka_timestamp + INTERVAL 1 DAY"),
    ],
    otherwise="quarantine",
)
def sensor_readings(messages: DataFrame) -> DataFrame:
    """Every reading that a sensor sent; what cannot be read or is impossible waits in quarantine."""
    return messages
