"""For Airflow 3: the shop's files of a day are taken in every morning, all tables in one transaction.

Put this folder, or the folder above all projects, into Airflow's DAG bundles. Airflow's environment needs
`pip install --no-deps icefield`; the `icefield` command is found on the PATH, or named here with `icefield="..."`.
"""

from datetime import timedelta

from icefield.adapters.airflow import dag

daily = dag(
    "..", dag_id="ecommerce", schedule="0 5 * * *", default_args={"retries": 2, "retry_delay": timedelta(minutes=5)}
)
