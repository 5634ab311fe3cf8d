"""Calls every function over empty frames, so that mistakes are found before a file is read or written."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from icefield.declare import Accumulate, ExpectTable, Full, Reconciles, References, format_columns
from icefield.engine.checks.rejects import quarantine_schema
from icefield.engine.checks.split import splitting
from icefield.engine.frames import empty_frame
from icefield.engine.origin import IDENTITY, ORIGIN, visible
from icefield.engine.promises.actions import Watched, watching
from icefield.engine.promises.call import Call
from icefield.engine.promises.column_lineage import column_lineage, remembered, through
from icefield.engine.promises.finish import prove_finish
from icefield.engine.promises.group_keys import checked_groups
from icefield.engine.promises.keys import (
    measured,
    require_exact_checks,
    require_keys,
    require_unasked,
    require_unasked_finish,
)
from icefield.engine.promises.naming import require_columns, require_once, require_spelling
from icefield.engine.promises.rules import prove
from icefield.engine.promises.spark_plans import input_frame
from icefield.engine.promises.user_errors import is_sparks, line_of, told
from icefield.engine.sql import quoted
from icefield.errors import BadFunction, BadPredicate, ContractBroken, IcefieldError, OriginLost
from icefield.graph import owner_of
from icefield.interrupt import stop_if_asked

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from icefield.declare import Check, Column, RowCheck
    from icefield.engine.promises.rules import Proof
    from icefield.graph import Graph, Node
    from icefield.graph.column_lineage import ColumnLineage
    from icefield.graph.state import Repair


@dataclass(frozen=True, slots=True)
class Derived:
    """What the functions of a project give: columns, without icefield's own.

    `measures` are those of accumulating tables before `finish`; `apart` are the tables that need them kept beside;
    `promises` tells of each incremental table whether its promise is proven or trusted.
    """

    schemas: dict[str, StructType] = field(default_factory=dict)
    measures: dict[str, StructType] = field(default_factory=dict)
    apart: set[str] = field(default_factory=set)
    promises: dict[str, Proof] = field(default_factory=dict)
    #: Where columns come from, if that was asked for.
    lineage: dict[str, ColumnLineage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """Calls the functions of the tables that a run is about; other tables are known by their stored columns.

    `settled` are tables whose promise was proven, or accepted, for the code as it is.
    """

    spark: SparkSession
    root: Path
    graph: Graph
    functions: Mapping[str, Callable[..., Any]]
    finishes: Mapping[str, Callable[..., Any]]
    stored: Callable[[str], StructType]
    settled: Mapping[str, Proof]
    #: Whether to find out where each column comes from.
    lineage: bool = False

    def derive(self, tables: Collection[str]) -> Derived:
        """The columns of every table; whatever its function, checks and refresh cannot mean is refused."""
        found = Derived()
        outputs: dict[str, DataFrame] = {}
        for name in self.graph.order:
            stop_if_asked()
            if name in tables:
                outputs[name] = self._derive(self.graph[name], found)
        for name, output in outputs.items():
            _require_checks(self.spark, self.graph[name], output, found.schemas)
        return found

    def _derive(self, node: Node, found: Derived) -> DataFrame:
        name = node.name
        inputs = self._empty_inputs(node, found)
        call = _call_empty(self.root, node, self.functions[name], inputs)
        output, finish_promise = call.output, None
        if isinstance(node.refresh, Accumulate):
            found.measures[name] = measured(node, output)
            whole = True
            if name in self.finishes:
                output, finish_promise, whole = self._finish(node, found.measures[name])
            if splitting(node)[0] or not whole:  # what is shown does not tell all the measures
                found.apart.add(name)
        found.schemas[name] = visible(output).schema
        require_columns(node, found.schemas[name])
        _require_contract(node, found.schemas[name])
        if name in self.settled:
            found.promises[name] = self.settled[name]
        elif not isinstance(node.refresh, Full):
            if node.keys:
                require_keys(node, inputs, found.schemas)
            found.promises[name] = "trusted" if "trusted" in (prove(call), finish_promise) else "proven"
        if self.lineage and (lineage := self._lineage(call, output)) is not None:
            found.lineage[name] = lineage
        return output

    def _lineage(self, call: Call, output: DataFrame) -> ColumnLineage | None:
        """Where the columns of a table come from: of its function or, by that, of what `finish` makes of it."""

        def find() -> ColumnLineage:
            found = column_lineage(call.inputs, call.output)
            if output is call.output:
                return found
            measures = input_frame(self.spark, 0, call.output.schema)
            return through(found, column_lineage({"": measures}, self.finishes[call.node.name](measures)))

        return remembered(call.node, call.inputs, find)

    def _finish(self, node: Node, measures: StructType) -> tuple[DataFrame, Proof, bool]:
        """What `finish` makes of the measures, and whether all of them are still there to be read from it."""
        rows = input_frame(self.spark, 0, measures)
        try:
            with watching(self.root) as watched:
                output = self.finishes[node.name](rows)
            _ = output.columns
        except Exception as error:
            raise BadFunction(
                f"finish= of {node.name} does not match its measures: {told(error)}",
                where=line_of(error, self.root) or str(node.location),
                remedy=f"it receives a DataFrame with {', '.join(measures.names)} and must return the table's columns",
            ) from error
        require_unasked_finish(node, watched.asked)
        return output, *prove_finish(node, rows, output)

    def _empty_inputs(self, node: Node, found: Derived) -> dict[str, DataFrame]:
        frames = {}
        for number, edge in enumerate(node.edges):
            if edge.table is not None:
                schema = self._schema(edge.table, found)
            else:
                assert edge.source is not None
                parsed = StructType.fromDDL(f"{format_columns(edge.source.columns)}, {ORIGIN}")
                assert isinstance(parsed, StructType)
                schema = parsed
            frames[edge.parameter] = input_frame(self.spark, number, schema)
        return frames

    def _schema(self, table: str, found: Derived) -> StructType:
        """The columns of an input: those that its function gives where that is called, else those that are stored."""
        if table not in found.schemas and (owner := owner_of(table)) != table:
            found.schemas[table] = quarantine_schema(self._schema(owner, found))
        elif table not in found.schemas:
            found.schemas[table] = self.stored(table)
        return found.schemas[table]


def _call_empty(root: Path, node: Node, function: Callable[..., Any], inputs: Mapping[str, DataFrame]) -> Call:
    try:
        output, watched = _watched_call(root, function, inputs)
        columns = getattr(output, "columns", None)
    except IcefieldError:
        raise
    except Exception as error:
        what = "does not match its inputs:" if is_sparks(error) else "raised"
        raise BadFunction(
            f"the function of {node.name} {what} {told(error)}",
            where=line_of(error, root) or str(node.location),
            remedy="fix the function; it was called with empty inputs to determine its columns",
        ) from error
    if columns is None:
        raise BadFunction(
            f"the function of {node.name} returned {type(output).__name__}, not a DataFrame",
            where=str(node.location),
            remedy="return a DataFrame from the function",
        )
    require_once(node, columns)
    if not isinstance(node.refresh, Full):
        require_unasked(node, watched.asked)
    return Call(node=node, function=function, inputs=inputs, output=output, lines=watched.lines)


def _watched_call(root: Path, function: Callable[..., Any], inputs: Mapping[str, DataFrame]) -> tuple[Any, Watched]:
    known = _LEARNING in sys.modules
    with watching(root) as watched, checked_groups():
        output = function(**inputs)
    if not known and _LEARNING in sys.modules:  # it could not be watched before it was imported
        return _watched_call(root, function, inputs)
    return output, watched


#: What trains models: by what it learns from all rows.
_LEARNING = "pyspark.ml.base"


def _require_contract(node: Node, schema: StructType) -> None:
    if node.columns is None:
        return
    wanted = [(column.name, _type(column)) for column in node.columns]
    given = [(field.name, field.dataType.simpleString().upper()) for field in schema]
    if given != wanted:
        raise ContractBroken(
            f"{node.name} returns columns other than those declared in `columns=`: {_difference(wanted, given)}",
            where=str(node.location),
            remedy="return exactly these names, types and order (cast where needed), or change `columns=`",
        )


def _type(column: Column) -> str:
    return column.type.upper().replace(" ", "")


def _difference(wanted: list[tuple[str, str]], given: list[tuple[str, str]]) -> str:
    told = [f"{n} {t} is missing" for n, t in wanted if n not in dict(given)]
    told += [f"{n} {t} is not declared" for n, t in given if n not in dict(wanted)]
    told += [f"{n} is {t}, declared {dict(wanted)[n]}" for n, t in given if dict(wanted).get(n, t) != t]
    return "; ".join(told) or f"the order is {', '.join(n for n, _ in given)}"


def _require_checks(spark: SparkSession, node: Node, output: DataFrame, schemas: Mapping[str, StructType]) -> None:
    empty = visible(output)
    _must_all_resolve(node, node.row_checks, empty)
    if not isinstance(node.refresh, Full):
        require_exact_checks(node, empty)
    for check in node.table_checks:
        require_spelling(node, check, schemas)
        for table, expressions in _sql_of(node, check):
            if table == node.name:
                _must_resolve(node, check, empty, *expressions)
            elif table in schemas:
                _must_resolve(node, check, empty_frame(spark, schemas[table]), *expressions)
    if splitting(node)[1] and not set(IDENTITY) <= set(output.columns):
        raise OriginLost(
            f"{node.name} rejects duplicates, which needs the order of arrival, but its function drops it",
            where=str(node.location),
            remedy="keep the source's columns: use withColumn and drop instead of select, or select('*', ...)",
        )


def _sql_of(node: Node, check: Check) -> list[tuple[str, list[str]]]:
    """The SQL that a check of whole tables evaluates, and over which table."""
    match check:
        case ExpectTable():
            return [(node.name, [f"boolean({check.aggregate})"])]
        case Reconciles():
            return [(table, [amount]) for table, amount in check.amounts.items()]
        case References():
            column = quoted(check.column)
            return [(check.of or node.name, [column, f"boolean({check.where})"]), (check.to, [column])]
        case _:
            return []


def _must_all_resolve(node: Node, checks: Sequence[RowCheck], frame: DataFrame) -> None:
    """All at once, since analysing takes its time; one by one only to find out which it was."""
    try:
        _ = frame.selectExpr("1", *(f"boolean({check.predicate})" for check in checks)).schema
    except PySparkException:
        for check in checks:
            _must_resolve(node, check, frame, f"boolean({check.predicate})")


def _must_resolve(node: Node, check: Check, frame: DataFrame, *expressions: str) -> None:
    try:
        _ = frame.selectExpr(*expressions).schema
    except PySparkException as error:
        raise BadPredicate(
            f"the check `{check.name}` of {node.name} cannot be evaluated: {first_line(error)}",
            where=str(node.location),
            remedy="fix its SQL; it is a Spark SQL expression over the columns that the table's function returns",
        ) from error


def require_repair(spark: SparkSession, node: Node, schemas: Mapping[str, StructType], repair: Repair) -> None:
    """Refuses a repair whose SQL does not fit what quarantine shows, before anything is done."""
    if problem := misfit(spark, schemas[node.name], repair):
        raise BadPredicate(
            f"the repair of {node.name} cannot be applied: {problem}",
            where=f"{node.name}__quarantine",
            remedy="use Spark SQL over the table's columns, `reasons` and `line`",
        )


def misfit(spark: SparkSession, schema: StructType, repair: Repair) -> str:
    """Why the SQL of a repair does not fit a table of these columns; empty where it does."""
    shown = empty_frame(spark, schema)
    added = {"reasons": "CAST(array() AS ARRAY<STRING>)", "line": "bigint(null)"}
    shown = shown.withColumns({name: F.expr(value) for name, value in added.items() if name not in shown.columns})
    if unknown := [name for name, _ in repair.assign if name not in schema.names]:
        return f"there is no column {', '.join(unknown)}"
    try:
        values = [F.expr(value).cast(schema[name].dataType) for name, value in repair.assign]
        _ = shown.where(repair.where).select(F.lit(1), *values).schema
    except PySparkException as error:
        return first_line(error)
    return ""


def first_line(error: BaseException) -> str:
    """What Spark has to say, without the plan and the stack below it."""
    return str(error).strip().split("\n", 1)[0].strip()
