"""From declarations to a graph: wiring, order, outcomes, and every refusal with its line."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from icefield.declare import (
    Reconciles,
    References,
    accumulate,
    between,
    by_key,
    collecting,
    expect,
    expect_table,
    files,
    fresh_within,
    lookup,
    not_null,
    one_of,
    reconciles,
    ref,
    references,
    table,
    unique,
)
from icefield.errors import (
    CyclicTables,
    DeclarationError,
    DuplicateTable,
    InvalidName,
    InvalidOption,
    UnknownColumn,
    UnknownInput,
    UnknownTable,
)
from icefield.graph import Graph, build_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SOURCE = files("landing/*.csv", schema="order_id BIGINT, amount DECIMAL(12,2)")


def reading(*names: str) -> Callable[..., Any]:
    """A function with the given parameters."""
    space: dict[str, Any] = {}
    exec(f"def f({', '.join(names)}): return None", space)
    function: Callable[..., Any] = space["f"]
    return function


def graph_of(**tables: tuple[str, ...]) -> Graph:
    """A graph by last parts: graph_of(a=(), b=("a",))."""
    with collecting() as registry:
        for name, inputs in tables.items():
            if inputs:
                table(f"s.{name}")(reading(*inputs))
            else:
                table(f"s.{name}", source=SOURCE)(reading("rows"))
    return build_graph(registry.tables)


@contextmanager
def refused(error: type[DeclarationError], *says: str) -> Iterator[None]:
    with pytest.raises(error) as caught:
        yield
    for text in says:
        assert text in str(caught.value)
    assert "test_build.py:" in caught.value.where
    assert caught.value.remedy


def build(*declare: Callable[[], object]) -> Graph:
    with collecting() as registry:
        for one in declare:
            one()
    return build_graph(registry.tables)


def test_a_source_is_not_refreshed_by_key() -> None:
    for refresh in (by_key("order_id"), accumulate("order_id", amount="sum")):
        with refused(InvalidOption, "reads from a source"):
            build(lambda kind=refresh: table("s.a", source=SOURCE, refresh=kind)(reading("rows")))  # type: ignore[misc]


def test_parameters_find_tables_by_their_last_part() -> None:
    graph = graph_of(a=(), b=("a",), c=("a", "b"))
    assert graph["s.c"].inputs == ("s.a", "s.b")
    assert [edge.parameter for edge in graph["s.c"].edges] == ["a", "b"]


def test_order_is_topological_and_otherwise_as_declared() -> None:
    assert graph_of(d=("b", "c"), b=("a",), c=("a",), a=(), z=()).order == ("s.a", "s.b", "s.c", "s.d", "s.z")


def test_the_source_is_the_first_parameter_and_the_rest_are_tables() -> None:
    graph = build(
        lambda: table("s.zones", source=SOURCE)(reading("rows")),
        lambda: table("s.trips", source=SOURCE)(reading("rows", "zones")),
    )
    assert graph["s.trips"].source == SOURCE
    assert graph["s.trips"].inputs == ("s.zones",)


def test_inputs_may_be_names_functions_refs_lookups_and_sources() -> None:
    raw = reading("rows")
    given = {"a": "s.raw", "b": raw, "c": ref("s.raw", key="id"), "d": lookup("raw", on="id"), "e": SOURCE}
    graph = build(
        lambda: table("s.raw", source=SOURCE)(raw),
        lambda: table("s.t", inputs=given)(reading("a", "b", "c", "d", "e")),
    )
    edges = {edge.parameter: edge for edge in graph["s.t"].edges}
    assert [edges[name].table for name in "abcde"] == ["s.raw", "s.raw", "s.raw", "s.raw", None]
    assert edges["c"].key == {"key": "id"}
    assert (edges["d"].lookup, edges["d"].on) == (True, ("id",))
    assert edges["e"].source == SOURCE
    assert graph["s.t"].inputs == ("s.raw",)


def test_a_parameter_of_ones_own_name_means_the_other_table() -> None:
    graph = build(
        lambda: table("bronze.orders", source=SOURCE)(reading("rows")),
        lambda: table("silver.orders")(reading("orders")),
    )
    assert graph["silver.orders"].inputs == ("bronze.orders",)


def test_an_unknown_input_is_offered_the_nearest_and_the_edit() -> None:
    with refused(UnknownInput, "`paymnts` of s.t", "did you mean `s.payments`", 'inputs={"paymnts": "s.payments"}'):
        graph_of(payments=(), t=("paymnts",))


def test_an_ambiguous_input_lists_the_tables_it_may_be() -> None:
    with refused(UnknownInput, "is ambiguous: a.x, b.x", 'inputs={"x": "a.x"}'):
        build(
            lambda: table("a.x", source=SOURCE)(reading("rows")),
            lambda: table("b.x", source=SOURCE)(reading("rows")),
            lambda: table("c.t")(reading("x")),
        )


def test_a_function_that_declares_no_table_is_no_input() -> None:
    with refused(UnknownInput, "declares no table"):
        build(lambda: table("s.t", inputs={"x": reading("y")})(reading("x")))


def test_an_unused_key_of_inputs_is_refused() -> None:
    with refused(UnknownInput, "`order`", "did you mean `orders`"):
        build(
            lambda: table("s.raw", source=SOURCE)(reading("rows")),
            lambda: table("s.t", inputs={"order": "s.raw", "orders": "s.raw"})(reading("orders")),
        )


def test_a_circle_is_shown_as_one() -> None:
    with refused(CyclicTables, "s.a -> s.b -> s.c -> s.a"):
        build(*(lambda n=n, i=i: table(f"s.{n}")(reading(i)) for n, i in (("a", "c"), ("b", "a"), ("c", "b"))))


def test_a_table_that_reads_itself_is_refused() -> None:
    with refused(CyclicTables, "reads itself"):
        build(lambda: table("s.t")(reading("t")))
    with refused(CyclicTables, "reads itself"):
        build(lambda: table("s.t", inputs={"x": "s.t"})(reading("x")))


def test_two_tables_of_one_name_are_refused_with_both_lines() -> None:
    with pytest.raises(DuplicateTable) as caught:
        build(
            lambda: table("s.t", source=SOURCE)(reading("rows")),
            lambda: table("s.t", source=SOURCE)(reading("rows")),
        )
    first, second = caught.value.where.split(" and ")
    assert int(second.split(":")[1]) == int(first.split(":")[1]) + 1


def test_two_sources_of_one_table_are_refused() -> None:
    with refused(InvalidOption, "more than one source"):
        build(lambda: table("s.t", source=SOURCE, inputs={"more": SOURCE})(reading("rows", "more")))
    with refused(InvalidOption, "by both source= and inputs="):
        build(lambda: table("s.t", source=SOURCE, inputs={"rows": SOURCE})(reading("rows")))


@pytest.mark.parametrize(
    "check",
    [
        not_null("amout"),
        one_of("amout", 1),
        between("amout", 0, 1),
        unique("amout"),
        fresh_within("amout", timedelta(1)),
    ],
)
def test_a_typed_check_on_a_column_outside_of_the_contract_is_refused(check: Any) -> None:
    with refused(UnknownColumn, "`amout`", "did you mean `amount`"):
        build(lambda: table("s.t", source=SOURCE, columns="id INT, amount INT", checks=[check])(reading("rows")))


@pytest.mark.parametrize("options", [{"partitioned_by": ["days(tz)"]}, {"volatile": ["tz"]}])
def test_partition_and_volatile_columns_are_held_to_the_contract(options: dict[str, Any]) -> None:
    with refused(UnknownColumn, "`tz`"):
        build(lambda: table("s.t", source=SOURCE, columns="ts TIMESTAMP", **options)(reading("rows")))


def test_a_slip_of_one_letter_from_a_source_column_is_refused() -> None:
    with refused(UnknownColumn, "`oder_id`", "did you mean `order_id`"):
        build(lambda: table("s.t", source=SOURCE, checks=[not_null("oder_id")])(reading("rows")))


def test_columns_the_function_may_add_are_never_refused() -> None:
    def adds(rows: Any) -> Any:
        return rows.withColumn("amounts", rows.amount)

    graph = build(
        lambda: table("s.a", source=SOURCE, checks=[not_null("total"), not_null("AMOUNT")])(reading("rows")),
        lambda: table("s.b", source=SOURCE, checks=[not_null("amounts", "source_file")])(adds),
        lambda: table("s.c", checks=[not_null("anything")])(reading("a")),
    )
    assert len(graph) == 3


def test_a_helper_that_adds_the_column_counts_as_the_function() -> None:
    graph = build(lambda: table("s.b", source=SOURCE, checks=[not_null("amounts")])(_calls_a_helper))
    assert len(graph) == 1


def _calls_a_helper(rows: Any) -> Any:
    return _helper(rows)


def _helper(rows: Any) -> Any:
    return rows.withColumnRenamed("amount", "amounts")


def test_nested_columns_are_known_by_their_first_part() -> None:
    columns = "address STRUCT<city: STRING>"
    graph = build(
        lambda: table("s.t", source=SOURCE, columns=columns, checks=[not_null("address.city")])(reading("rows"))
    )
    assert graph["s.t"].row_checks[0].predicate == "`address`.`city` IS NOT NULL"


def test_checks_of_icefields_own_columns_are_refused() -> None:
    with refused(InvalidName, "_icefield_run"):
        build(lambda: table("s.t", source=SOURCE, checks=[not_null("_icefield_run")])(reading("rows")))


@pytest.mark.parametrize(
    "check",
    [
        references("id", to="s.order"),
        references("id", to="s.orders", of="s.order"),
        reconciles("r", {"s.orders": "count(*)", "s.order": "count(*)"}),
    ],
)
def test_checks_that_name_unknown_tables_are_refused(check: Any) -> None:
    with refused(UnknownTable, "s.order", "did you mean `s.orders`"):
        build(lambda: table("s.orders", source=SOURCE, checks=[check])(reading("rows")))


def test_checks_across_tables_are_no_edges_so_they_may_look_back() -> None:
    graph = build(
        lambda: table("s.a", source=SOURCE, checks=[references("order_id", to="s.b")])(reading("rows")),
        lambda: table("s.b", checks=[reconciles("n", {"s.a": "count(*)", "b": "count(*)"})])(reading("a")),
    )
    assert graph.order == ("s.a", "s.b")
    check = graph["s.b"].table_checks[0]
    assert isinstance(check, Reconciles)
    assert list(check.amounts) == ["s.a", "s.b"]


def test_outcomes_are_resolved_and_whole_tables_are_never_set_aside() -> None:
    checks = [
        expect("x", "amount > 0"),
        expect("y", "amount > 1", otherwise="warn"),
        unique("order_id"),
        expect_table("z", "count(*) > 0"),
        references("order_id", to="s.t"),
    ]
    graph = build(lambda: table("s.t", source=SOURCE, checks=checks, otherwise="quarantine")(reading("rows")))
    node = graph["s.t"]
    assert [check.otherwise for check in node.row_checks] == ["quarantine", "warn"]
    assert [check.otherwise for check in node.table_checks] == ["quarantine", "fail", "fail"]


def test_a_check_of_another_table_keeps_that_tables_name() -> None:
    graph = build(
        lambda: table("s.a", source=SOURCE)(reading("rows")),
        lambda: table("s.b", checks=[references("k", to="b", of="a"), references("k", to="a", of="s.b")])(reading("a")),
    )
    found = [(c.to, c.of) for c in graph["s.b"].table_checks if isinstance(c, References)]
    assert found == [("s.b", "s.a"), ("s.a", None)]


def test_up_and_downstream_by_depth() -> None:
    graph = graph_of(a=(), b=("a",), c=("b",), d=("c",))
    assert graph.upstream(["s.d"]) == ("s.a", "s.b", "s.c")
    assert graph.upstream(["s.d"], 1) == ("s.c",)
    assert graph.downstream(["s.a"], 2) == ("s.b", "s.c")
    assert graph.upstream(["s.d"], 0) == ()
    assert graph.readers() == {"s.a": ("s.b",), "s.b": ("s.c",), "s.c": ("s.d",), "s.d": ()}


def test_a_long_chain_is_no_matter() -> None:
    names = [f"t{number}" for number in range(3000)]
    graph = graph_of(**{name: (names[i - 1],) if i else () for i, name in enumerate(names)})
    assert graph.order[-1] == "s.t2999"


def test_a_graph_survives_json() -> None:
    checks = [
        not_null("order_id"),
        unique("order_id"),
        fresh_within("order_id", timedelta(days=2, seconds=3)),
        reconciles("r", {"s.a": "count(*)", "s.b": "count(*)"}, within=0.5),
        references("order_id", to="s.b"),
        expect_table("n", "count(*) > 0"),
    ]
    graph = build(
        lambda: table(
            "s.a", source=SOURCE, checks=checks, partitioned_by=["bucket(4, order_id)"], tags=["x"], owners=["team:y"]
        )(reading("rows")),
        lambda: table("s.b", inputs={"a": lookup("s.a", on="order_id")}, columns="id INT NOT NULL COMMENT 'k'")(
            reading("a")
        ),
    )
    assert Graph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize("text", ["{}", "[]", '{"$": "os.system"}', '{"$": "Node", "nome": 1}', "not json"])
def test_json_that_holds_no_graph_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        Graph.from_json(text)
