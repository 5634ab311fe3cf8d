"""Calls every function over empty frames, so that mistakes are found before a file is read or written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from icefield.declare import Accumulate, Append, ByKey, ExpectTable, Full, Reconciles, References, format_columns
from icefield.engine.actions import watching
from icefield.engine.author import is_sparks, line_of, told
from icefield.engine.frames import empty_frame
from icefield.engine.joined import require_joined
from icefield.engine.merging import measured, require_merging
from icefield.engine.naming import require_columns, require_once, require_spelling
from icefield.engine.origin import IDENTITY, ORIGIN, visible
from icefield.engine.promises import (
    finished,
    require_exact,
    require_exact_checks,
    require_keys,
    require_keys_alone,
    require_rows_alone,
    require_unasked,
    require_united,
)
from icefield.engine.proof import is_proven
from icefield.engine.quality import splitting
from icefield.engine.tables import quoted
from icefield.errors import BadFunction, BadPredicate, ContractBroken, IcefieldError, OriginLost
from icefield.interrupt import stop_if_asked

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from icefield.declare import Check, Column, RowCheck
    from icefield.graph import Graph, Node
    from icefield.graph.state import Repair


@dataclass(frozen=True, slots=True)
class Derived:
    """What the functions of a project give: columns, without icefield's own.

    `measures` are those of accumulating tables before `finish`; `apart` are the tables that need them kept beside;
    `calls` are empty inputs and what each keyed function made of them.
    """

    schemas: dict[str, StructType] = field(default_factory=dict)
    measures: dict[str, StructType] = field(default_factory=dict)
    apart: set[str] = field(default_factory=set)
    calls: dict[str, tuple[dict[str, DataFrame], DataFrame]] = field(default_factory=dict)

    def is_proven(self, node: Node) -> bool:
        """Whether a keyed table's promise needs no trial."""
        return is_proven(node, *self.calls[node.name])


def derive_schemas(
    spark: SparkSession,
    root: Path,
    graph: Graph,
    functions: Mapping[str, Callable[..., Any]],
    finishes: Mapping[str, Callable[..., Any]],
    settled: Container[str] = (),
) -> Derived:
    """The columns of every table; whatever its function, checks and refresh cannot mean is refused.

    `settled` are tables that were built with the code as it is: their promises were looked at then.
    """
    found = Derived()
    outputs: dict[str, DataFrame] = {}
    for name in graph.order:
        stop_if_asked()
        node = graph[name]
        inputs = _empty_inputs(spark, node, found.schemas)
        output = _call_empty(root, node, functions[name], inputs)
        if name not in settled:
            _require_promise(node, inputs, output)
        if node.keys:
            found.calls[name] = (inputs, output)
        if isinstance(node.refresh, Accumulate):
            found.measures[name] = measured(node, output)
            if name in finishes:
                output, whole = finished(spark, root, node, finishes[name], found.measures[name])
            else:
                whole = True
            if splitting(node)[0] or not whole:  # what is shown does not tell all the measures
                found.apart.add(name)
        outputs[name] = output
        found.schemas[name] = visible(output).schema
        require_columns(node, found.schemas[name])
        _require_contract(node, found.schemas[name])
        if node.keys and name not in settled:
            require_keys(node, inputs, found.schemas)
            if isinstance(node.refresh, ByKey):
                require_joined(node, inputs, output)
    for name, output in outputs.items():
        _require_checks(spark, graph[name], output, found.schemas)
    return found


def _require_promise(node: Node, inputs: Mapping[str, DataFrame], output: DataFrame) -> None:
    if isinstance(node.refresh, Append):
        require_rows_alone(node, inputs, output)
    if isinstance(node.refresh, Accumulate):
        require_united(node, inputs, output)
        require_merging(node, output)
    if isinstance(node.refresh, ByKey):
        require_keys_alone(node, inputs, output)
    if not isinstance(node.refresh, Full):
        require_exact(node, output)


def _call_empty(root: Path, node: Node, function: Callable[..., Any], inputs: Mapping[str, DataFrame]) -> DataFrame:
    try:
        with watching() as asked:
            output = function(**inputs)
        columns = getattr(output, "columns", None)
    except IcefieldError:
        raise
    except Exception as error:
        what = "does not fit its inputs:" if is_sparks(error) else "raised"
        raise BadFunction(
            f"the function of {node.name} {what} {told(error)}",
            where=line_of(error, root) or str(node.location),
            remedy="correct what it names; the function was called with empty inputs, to learn its columns",
        ) from error
    if columns is None:
        raise BadFunction(
            f"the function of {node.name} returned {type(output).__name__}, not a DataFrame",
            where=str(node.location),
            remedy="end the function with `return` and a DataFrame",
        )
    require_once(node, columns)
    if not isinstance(node.refresh, Full):
        require_unasked(node, inputs, asked)
    return output  # type: ignore[no-any-return]


def _empty_inputs(spark: SparkSession, node: Node, schemas: Mapping[str, StructType]) -> dict[str, DataFrame]:
    frames = {}
    for edge in node.edges:
        if edge.table is not None:
            frames[edge.parameter] = empty_frame(spark, schemas[edge.table])
        else:
            assert edge.source is not None
            frames[edge.parameter] = empty_frame(spark, f"{format_columns(edge.source.columns)}, {ORIGIN}")
    return frames


def _require_contract(node: Node, schema: StructType) -> None:
    if node.columns is None:
        return
    wanted = [(column.name, _type(column)) for column in node.columns]
    given = [(field.name, field.dataType.simpleString().upper()) for field in schema]
    if given != wanted:
        raise ContractBroken(
            f"{node.name} gives other columns than `columns=` promises: {_difference(wanted, given)}",
            where=str(node.location),
            remedy="return exactly these names, types and order (cast where needed), or change `columns=`",
        )


def _type(column: Column) -> str:
    return column.type.upper().replace(" ", "")


def _difference(wanted: list[tuple[str, str]], given: list[tuple[str, str]]) -> str:
    told = [f"{n} {t} is missing" for n, t in wanted if n not in dict(given)]
    told += [f"{n} {t} is not promised" for n, t in given if n not in dict(wanted)]
    told += [f"{n} is {t}, promised {dict(wanted)[n]}" for n, t in given if dict(wanted).get(n, t) != t]
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
            f"{node.name} sets duplicates aside, which needs the order of arrival, but its function lets go of it",
            where=str(node.location),
            remedy="keep the source's columns: withColumn and drop in place of select, or select('*', ...)",
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
            remedy="correct its SQL; it is Spark SQL over the columns that the table's function returns",
        ) from error


def require_repair(spark: SparkSession, node: Node, schemas: Mapping[str, StructType], repair: Repair) -> None:
    """Refuses a repair whose SQL does not fit what quarantine shows, before anything is done."""
    if problem := misfit(spark, schemas[node.name], repair):
        raise BadPredicate(
            f"the repair of {node.name} cannot be applied: {problem}",
            where=f"{node.name}__quarantine",
            remedy="it is Spark SQL over the table's columns, `reasons` and `line`",
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
