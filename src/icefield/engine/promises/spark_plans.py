"""Where a frame's plan is read from Spark: the one module of promises that reaches into the JVM."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext

from icefield.engine.promises.anchors import MARK
from icefield.engine.promises.exactness import changing_in
from icefield.engine.promises.plan_tree import Tree, everything, parse
from icefield.engine.sql import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: A plan may be as deep as an author's loop of `withColumn` is long.
_DEEP = 20_000


@contextmanager
def deep_plans() -> Iterator[None]:
    """Lets functions that walk a plan go as deep as it is."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEP))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def input_frame(spark: SparkSession, number: int, schema: StructType) -> DataFrame:
    """An empty frame that stands for a function's input, by which its plan tells what comes from where."""
    # As text: a call to Java for each column would take longer than all of the analysis.
    columns = (f"CAST(NULL AS {f.dataType.simpleString()}) AS {quoted(f.name)}" for f in schema)
    return spark.range(MARK - number, MARK - number).selectExpr(*columns)


def tree_of(frame: DataFrame) -> Tree:
    """The analysed plan of a frame."""
    plan = analysed(frame)
    tree = parse(plan.toJSON())
    for step in tree.walk():
        if step.name == "Expand" and step.fields.get("projections") is None:
            step.fields["projections"] = [  # type: ignore[index]  # JSON leaves these out
                [parse(one.toJSON()) for one in items(each)] for each in items(_step(plan, step).projections())
            ]
        elif step.name == "Deduplicate":
            columns = items(_step(plan, step).child().output())
            step.fields["columns"] = [int(one.exprId().id()) for one in columns]  # type: ignore[index]
    return tree


def _step(plan: Any, step: Tree) -> Any:
    """A step of a plan in the JVM."""
    for number in step.path:
        plan = plan.children().apply(number)
    return plan


def analysed(frame: DataFrame) -> Any:
    """The plan of a frame in the JVM, with every name resolved."""
    return frame._jdf.queryExecution().analyzed()


def line_in_query(frame: DataFrame, step: Tree) -> int | None:
    """The line of SQL text that a step comes from; None for what was written in Python."""
    line = _step(analysed(frame), step).origin().line()
    return int(line.get()) if line.isDefined() else None


def typed(frame: DataFrame, step: Tree, field: str) -> list[Tree]:
    """The columns that a step makes, with what JSON leaves out: types, and whether a failure gives NULL."""
    plan = _step(analysed(frame), step)
    return [_typed(tree, entry) for tree, entry in zip(step.listed(field), items(getattr(plan, field)()), strict=True)]


def _typed(tree: Tree, expression: Any) -> Tree:
    told: dict[str, Any] = {
        "type": str(expression.dataType().catalogString()),
        "function": str(expression.prettyName()),
    }
    children = items(expression.children())
    if tree.name == "Cast":
        told["evalMode"] = str(expression.evalMode())
        told["renames"] = _differ_in_names(children[0].dataType(), expression.dataType())
    below = tuple(_typed(child, found) for child, found in zip(tree.children, children, strict=True))
    sql = {"sql": str(expression.children().apply(0).sql())} if tree.name == "Alias" else {}
    return Tree(tree.name, {**tree.fields, **told, **sql}, below, tree.path)


def _differ_in_names(before: Any, after: Any) -> bool:
    """Whether two types are the same but for the names of their fields."""
    context = SparkContext._active_spark_context
    assert context is not None
    assert context._jvm is not None
    types, any_nullability = context._jvm.org.apache.spark.sql.types.DataType, True
    return bool(types.equalsStructurally(before, after, any_nullability))


def bytes_read_by(frame: DataFrame) -> int:
    """About how many bytes the tables, files and rows have that a frame is computed from, once filters skip files."""
    leaves = items(frame._jdf.queryExecution().optimizedPlan().collectLeaves())
    return sum(0 if _is_answered(leaf) else int(str(leaf.stats().sizeInBytes())) for leaf in leaves)


def _is_answered(leaf: Any) -> bool:
    """Whether Iceberg has answered a part of a query from metadata alone, such as a maximum."""
    return leaf.nodeName() == "DataSourceV2ScanRelation" and "LocalScan" in str(leaf.scan().getClass().getSimpleName())


def children_of(node: Any) -> list[Any]:
    """What is below a step or an expression in the JVM."""
    return items(node.children())


def items(sequence: Any) -> list[Any]:
    """The items of a sequence of Scala's."""
    return [sequence.apply(number) for number in range(sequence.size())]


def sees_rows_alone(frame: DataFrame) -> bool:
    """Whether a frame's rows depend on nothing but the rows it is made from: no other query, no clock, no chance."""
    plan = tree_of(frame)
    return changing_in(plan) is None and not any("plan" in tree.fields for tree in everything(plan))


#: Steps that give no row that was not there, and none twice.
_ROW_BY_ROW = ("Project", "Filter", "SubqueryAlias", "Sort", "GlobalLimit", "LocalLimit", "Repartition")


def hands_through(rows: DataFrame, output: DataFrame, name: str, code: str = "") -> bool:
    """Whether every row of `output` is one of `rows`, with this column as it was.

    The answer is remembered for the `code` that makes one of the other, if that is told, and for the columns.
    """
    known = (code, name, *rows.columns) if code else None
    if known is None or known not in _handed:
        found = _hands_through(rows, output, name)
        if known is None:
            return found
        _handed[known] = found
    return _handed[known]


_handed: dict[tuple[str, ...], bool] = {}


def _hands_through(rows: DataFrame, output: DataFrame, name: str) -> bool:
    # In the JVM: text of more than 8 kB takes 40 ms to arrive from there.
    plan = analysed(output)
    end = {attribute.exprId().id(): attribute.name() for attribute in items(analysed(rows).output())}
    found = [attribute for attribute in items(plan.output()) if attribute.name() == name]
    if len(found) != 1:
        return False
    followed = found[0].exprId().id()
    while plan.children().size() == 1:
        if plan.nodeName() not in _ROW_BY_ROW:
            return False
        if end.get(followed) != name and plan.nodeName() == "Project":
            followed = _copied(items(plan.projectList()), followed)
        plan = plan.children().apply(0)
    return bool(plan.children().isEmpty()) and end.get(followed) == name


def _copied(entries: list[Any], wanted: int) -> int | None:
    """The column below that a column is a copy of, if it is just that; a cast to the type it has changes nothing."""
    for entry in entries:
        if entry.exprId().id() == wanted:
            source = entry.child() if entry.nodeName() == "Alias" else entry
            while source.nodeName() == "Cast" and source.child().dataType().sameType(source.dataType()):
                source = source.child()
            return int(source.exprId().id()) if source.nodeName() == "AttributeReference" else None
    return None
