"""Declared tables, analysed as a run does it before it reads anything: no project, no files, no branch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from icefield.declare import Accumulate, append, collecting, files, table
from icefield.engine.promises.analyse import Analysis, Derived
from icefield.graph import build_graph

ORDERS = "id BIGINT, customer STRING, amount DECIMAL(10,2), at TIMESTAMP, day DATE, tags ARRAY<STRING>"
RATES = "customer STRING, day DATE, name STRING, rate DECIMAL(10,2)"


def _same(rows: Any) -> Any:
    return rows.drop("source_line", "source_file", "ingested_at")


def derive(spark: Any, function: Any, root: Path = Path("/nowhere"), **options: Any) -> Derived:
    """What a run knows of a table `gold.t` over orders, more orders (`b`) and rates; or what it refuses of it."""
    with collecting(root=root) as registry:
        for name, schema in {"orders": ORDERS, "b": ORDERS, "rates": RATES}.items():
            table(f"bronze.{name}", source=files(f"{name}/*.csv", schema=schema), refresh=append())(_same)
        table("gold.t", **options)(function)
    graph = build_graph(registry.tables)
    refreshes = {one.name: one.refresh for one in registry.tables}
    analysis = Analysis(
        spark=spark,
        root=root,
        graph=graph,
        functions={one.name: one.function for one in registry.tables},
        finishes={n: r.finish for n, r in refreshes.items() if isinstance(r, Accumulate) and r.finish is not None},
        stored=lambda name: (_ for _ in ()).throw(KeyError(name)),
        settled={},
    )
    return analysis.derive(graph.order)
