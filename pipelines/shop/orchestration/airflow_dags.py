"""For Airflow 3: what Debezium has captured of the shop is taken in every six hours.

A stream is a run repeated, so the schedule decides how old the marts may be, and nothing else. For seconds instead of
hours, `icefield run --watch` is the better choice.
"""

from icefield.adapters.airflow import dag

every_six_hours = dag("..", dag_id="shop", schedule="0 */6 * * *")
