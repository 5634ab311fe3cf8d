"""The averages of a minute by Spark Structured Streaming into Iceberg, as a careful user writes them.

    python bench/latency/structured_streaming.py BROKERS TOPIC PLACE PROGRESS JAR [JAR ...]

The same minutes as `metrics.sensor_minutes` of the sensors project: readings that come late correct their minute, those
that are sent again count once. Its sink for Iceberg cannot update rows, so each batch is merged into the table, as
Iceberg's documentation advises. State is kept for as long as readings are late here, 15 minutes; later ones would be
dropped. Readings are not stored, nor those set aside that cannot be read, and no other table is made of the minutes.

It is tuned: batches follow each other at once, as many shuffle partitions as cores, a checkpoint on local disk, a
merge that touches the day's partition alone and whose rows are not shuffled to spread them over files.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

TABLE = "lake.metrics.sensor_minutes"
SCHEMA = "sensor_id STRING, temperature DOUBLE, event_time TIMESTAMP"
COLUMNS = (
    "sensor_id STRING, minute TIMESTAMP, readings BIGINT, average DOUBLE, minimum DOUBLE, maximum DOUBLE, "
    "first_event_time TIMESTAMP, last_event_time TIMESTAMP, last_temperature DOUBLE, late_readings BIGINT"
)
PROPERTIES = {
    "format-version": "2",
    "write.merge.mode": "copy-on-write",
    "write.distribution-mode": "none",
    "write.merge.distribution-mode": "none",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
KEPT = "15 minutes"


def session(place: Path, jars: list[str]) -> SparkSession:
    settings = {
        "spark.driver.memory": "3g",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -Xms1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.jars": ",".join(jars),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(os.cpu_count()),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{place / 'catalog.db'}?journal_mode=WAL&busy_timeout=30000",
        "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        "spark.sql.catalog.lake.warehouse": str(place / "warehouse"),
    }
    builder = SparkSession.Builder().master("local[*]").appName("structured streaming")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def minutes(spark: SparkSession, brokers: str, topic: str) -> DataFrame:
    """The minutes that a batch changes, whole."""
    options = {
        "kafka.bootstrap.servers": brokers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    messages = spark.readStream.format("kafka").options(**options).load()
    reading = F.from_json(F.col("value").cast("STRING"), SCHEMA).alias("reading")
    readings = (
        messages.select(reading, F.col("timestamp").alias("kafka_timestamp"))
        .select("reading.*", "kafka_timestamp")
        .where("sensor_id IS NOT NULL AND event_time IS NOT NULL AND temperature BETWEEN -90 AND 80")
        .where("event_time <= kafka_timestamp + INTERVAL 1 DAY")
        .withWatermark("event_time", KEPT)
        .dropDuplicates(["sensor_id", "event_time"])
    )
    window = F.window("event_time", "1 minute")
    late = F.col("kafka_timestamp") >= F.date_trunc("MINUTE", "event_time") + F.expr("INTERVAL 90 SECONDS")
    measures = readings.groupBy("sensor_id", window).agg(
        F.count("*").alias("readings"),
        F.avg(F.col("temperature").cast("DECIMAL(9,4)")).cast("DOUBLE").alias("average"),
        F.min("temperature").alias("minimum"),
        F.max("temperature").alias("maximum"),
        F.min("event_time").alias("first_event_time"),
        F.max("event_time").alias("last_event_time"),
        F.max(F.struct("event_time", "temperature")).getField("temperature").alias("last_temperature"),
        F.count_if(late).alias("late_readings"),
    )
    return measures.withColumn("minute", F.col("window.start")).select(*COLUMNS.replace(",", "").split()[::2])


def merge(batch: DataFrame, _: int) -> None:
    """One commit: minutes that are there are replaced, others added."""
    batch.createOrReplaceTempView("changed")
    batch.sparkSession.sql(f"""
        MERGE INTO {TABLE} t USING changed s ON t.sensor_id = s.sensor_id AND t.minute = s.minute
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""")


def main(brokers: str, topic: str, place: Path, progress: Path, jars: list[str]) -> None:
    place.mkdir(parents=True, exist_ok=True)
    spark = session(place, jars)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.metrics")
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in PROPERTIES.items())
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {TABLE} ({COLUMNS}) USING iceberg PARTITIONED BY (days(minute)) "
        f"TBLPROPERTIES ({properties})"
    )
    query = (
        minutes(spark, brokers, topic)
        .writeStream.outputMode("update")
        .option("checkpointLocation", str(place / "checkpoint"))
        .foreachBatch(merge)
        .start()
    )
    wishes: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: wishes.append(number))
    told: set[int] = set()
    with progress.open("w", encoding="utf-8") as file:
        while not query.awaitTermination(1):
            for one in query.recentProgress:
                _tell(one, told, file)
            if wishes:
                query.stop()
    if error := query.exception():
        sys.exit(str(error))


def _tell(one: Any, told: set[int], file: Any) -> None:
    if one["batchId"] in told or not one["numInputRows"]:
        return
    told.add(one["batchId"])
    seconds = one["durationMs"]["triggerExecution"] / 1000
    file.write(json.dumps({"batch": one["batchId"], "rows": one["numInputRows"], "seconds": seconds}) + "\n")
    file.flush()


if __name__ == "__main__":
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5:])
