"""A project as an Airflow DAG: one task for the transaction, and one for each table that shows what became of it.

    from icefield.adapters.airflow import dag

    daily = dag("/srv/shop", schedule="0 5 * * *", icefield="/opt/icefield/bin/icefield")

Airflow's environment needs icefield without its dependencies: what is imported here is the standard library and
Airflow's SDK. Everything else is asked of the `icefield` command, which lives in an environment of its own.
"""

from icefield.adapters.airflow.dags import dag as dag
from icefield.adapters.airflow.operators import IcefieldRunOperator as IcefieldRunOperator
from icefield.adapters.airflow.operators import IcefieldTableOperator as IcefieldTableOperator

__all__ = ["IcefieldRunOperator", "IcefieldTableOperator", "dag"]
