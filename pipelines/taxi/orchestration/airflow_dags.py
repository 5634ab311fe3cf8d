"""For Airflow 3: on the first of the month the trips of the month before are taken in, and past months by a backfill.

The timetable has data intervals: the run on 1 February has the logical date 1 January, and takes in the files of
January. Where the month's files have not arrived, the transaction fails and is tried again every day for a week.
"""

from datetime import datetime, timedelta

from airflow.sdk import CronDataIntervalTimetable

from icefield.adapters.airflow import dag

first_of_the_month = dag(
    "..",
    dag_id="taxi",
    schedule=CronDataIntervalTimetable("0 6 1 * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1),
    default_args={"retries": 7, "retry_delay": timedelta(days=1)},
)
