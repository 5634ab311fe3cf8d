"""Spark: the session, reading, the refreshes, checks. The only package that imports pyspark."""
