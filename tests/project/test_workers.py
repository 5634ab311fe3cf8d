"""A project's Python UDFs run in Spark's workers, which cannot import its modules by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from icefield.errors import ColumnAtLoad
from icefield.project import load_functions, open_project

if TYPE_CHECKING:
    from .conftest import Write

TABLES = """
    from pyspark.sql import functions as F
    from pyspark.sql.types import IntegerType
    from icefield import files, table
    import helpers
    from helpers import twice

    STEP = 3

    @F.udf(IntegerType())
    def stepped(value):
        return twice(value) + helpers.OFFSET + STEP

    @table("a.t", source=files("*.csv", schema="i INT"))
    def t(rows):
        return rows.select(stepped("i").alias("i"))
    """
HELPERS = """
    OFFSET = 100
    def twice(value):
        return 2 * value
    """


@pytest.mark.spark
def test_a_udf_that_uses_other_modules_of_the_project_runs_in_a_worker(write: Write) -> None:
    toml = '[project]\ntables = ["t.py"]\n'
    root = write(**{"t.py": TABLES, "helpers.py": HELPERS, "icefield.toml": toml})
    function = load_functions(open_project(root))["a.t"]
    running = SparkSession.getActiveSession()
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        assert [row.i for row in function(spark.createDataFrame([(1,), (5,)], "i INT")).collect()] == [105, 113]
    finally:
        if running is None:
            spark.stop()


def test_a_udf_is_part_of_the_fingerprint_with_all_it_uses(write: Write) -> None:
    toml = '[project]\ntables = ["t.py"]\n'

    def printed(tables: str, helpers: str) -> str:
        root = write(**{"t.py": tables, "helpers.py": helpers, "icefield.toml": toml})
        return open_project(root).graph["a.t"].fingerprint

    base = printed(TABLES, HELPERS)
    assert printed(TABLES.replace("STEP = 3", "STEP = 4"), HELPERS) != base
    assert printed(TABLES.replace("IntegerType", "LongType"), HELPERS) != base
    assert printed(TABLES, HELPERS.replace("100", "101")) != base
    assert printed(TABLES, HELPERS.replace("2 * value", "value * 2")) != base
    assert printed(TABLES, HELPERS) == base


@pytest.mark.spark
def test_a_column_at_module_level_is_refused_under_a_live_session_too(write: Write) -> None:
    text = """
        from pyspark.sql import functions as F
        from icefield import files, table

        COMPLETED = F.col("i") > 0

        @table("a.t", source=files("*.csv", schema="i INT"))
        def t(rows):
            return rows.where(COMPLETED)
        """
    running = SparkSession.getActiveSession()
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        with pytest.raises(ColumnAtLoad) as refused:
            open_project(write(**{"t.py": text}))
    finally:
        if running is None:
            spark.stop()
    assert refused.value.where == "t.py:7"
