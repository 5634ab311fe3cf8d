"""Reads the lake with DuckDB: one consistent version of all tables, read-only, no JVM."""

from icefield.query.pins import Pin as Pin
from icefield.query.reader import Reader as Reader
from icefield.query.reader import open_reader as open_reader
from icefield.query.result import Result as Result
