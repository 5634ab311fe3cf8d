"""The rows of a query, in the shape that the next step wants."""

from __future__ import annotations

import importlib
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icefield.errors import MissingPackage, UnknownFormat
from icefield.lake.values import json_rows, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl
    import pyarrow as pa

FORMATS = (".parquet", ".csv", ".json")


class Result:
    """Rows with names and types; times are in UTC and say so.

    result = lake.sql("SELECT segment, count(*) AS customers FROM gold.customer_summary GROUP BY 1")
    result.columns          # ('segment', 'customers')
    result.rows()           # [('new', 12), ...]
    result.to_polars()
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"Result({len(self)} rows: {', '.join(self.columns)})"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._table.column_names)

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as plain Python values."""
        return list(zip(*(column.to_pylist() for column in self._table.columns), strict=True))

    def first(self, count: int) -> Result:
        """The first rows alone."""
        return Result(self._table.slice(0, count))

    def to_arrow(self) -> pa.Table:
        """The rows as a pyarrow Table."""
        return self._table

    def to_polars(self) -> pl.DataFrame:
        """The rows as a Polars DataFrame."""
        return _optional("polars").from_arrow(self._table)  # type: ignore[no-any-return]

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame; whole numbers and truth values stay exact where some are missing."""
        pandas = _optional("pandas")
        return self._table.to_pandas(types_mapper=_nullable(pandas).get)

    def save(self, path: Path | str) -> Path:
        """Writes the rows to a .parquet, .csv or .json file (an array, one row a line)."""
        file = Path(path)
        match file.suffix.lower():
            case ".parquet":
                importlib.import_module("pyarrow.parquet").write_table(self._table, file)
            case ".csv":
                importlib.import_module("pyarrow.csv").write_csv(_flat(self._table), file)
            case ".json":
                with file.open("w", encoding="utf-8") as out:
                    out.writelines(json_rows(self.columns, self.rows()))
            case other:
                raise UnknownFormat(
                    f"unknown file format `{other or file.name}`", remedy=f"name the file *{', *'.join(FORMATS)}"
                )
        return file


def collect(db: duckdb.DuckDBPyConnection) -> Result:
    """What DuckDB has just computed; through Arrow, where times need no further package."""
    import pyarrow as pa

    kinds = [str(column[1]) for column in db.description or ()]
    table = db.to_arrow_table()
    for index, kind in enumerate(kinds):
        if kind == "HUGEINT":  # DuckDB's sum of whole numbers; a whole number to everyone else as well
            try:
                whole = table.column(index).cast(pa.int64())
            except pa.ArrowInvalid:
                continue
            table = table.set_column(index, table.column_names[index], whole)
    return Result(table.rename_columns(_distinct(table.column_names)))


def _distinct(names: Sequence[str]) -> list[str]:
    """DuckDB allows two columns of one name; JSON, Polars and Parquet do not."""
    taken: dict[str, None] = {}
    for name in names:
        numbered = (f"{name}_{number}" for number in count(1))
        taken[next(free for free in chain([name], numbered) if free not in taken)] = None
    return list(taken)


def _optional(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingPackage(
            f"{package} is not installed", remedy=f"pip install 'icefield[{package}]', or use to_arrow()"
        ) from None


def _nullable(pandas: Any) -> dict[Any, Any]:
    import pyarrow as pa

    signed = {getattr(pa, f"int{size}")(): getattr(pandas, f"Int{size}Dtype")() for size in (8, 16, 32, 64)}
    return {**signed, pa.bool_(): pandas.BooleanDtype()}


def _flat(table: pa.Table) -> pa.Table:
    """CSV has no nested values and no bytes: they become text."""
    import pyarrow as pa

    for index, field in enumerate(table.schema):
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
            told = [None if value is None else plain(value) for value in table.column(index).to_pylist()]
            table = table.set_column(index, field.name, pa.array(told, pa.string()))
    return table
