"""An asset that reads a table and is read by another one would make two transactions of one run: refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import dagster as dg

from icefield.errors import OrchestrationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from icefield.adapters.dagster.assets import Keys
    from icefield.graph import Graph

    Readers: TypeAlias = "dict[dg.AssetKey, set[dg.AssetKey]]"


def refuse_between(graph: Graph, keys: Keys, assets: Iterable[dg.AssetsDefinition | dg.AssetSpec]) -> None:
    """Dagster would run the tables before such an asset in one step and those behind it in another."""
    tables = {keys.table(name): name for name in graph.order}
    readers: Readers = {}
    others: set[dg.AssetKey] = set()
    for asset in assets:
        for key, read in _inputs(asset).items():
            others.add(key)
            for other in read:
                readers.setdefault(other, set()).add(key)
    for key, name in tables.items():
        for source in keys.sources(graph[name]):
            readers.setdefault(source, set()).add(key)
    for key, name in tables.items():
        for between in sorted(readers.get(key, set()) & others):
            if behind := _reached(between, readers, others, tables):
                raise OrchestrationError(
                    f"the asset {between.to_user_string()} reads {name} and is read by {', '.join(behind)}: Dagster"
                    " would run them in two steps, which would be two transactions",
                    where="definitions(..., assets=[...])",
                    remedy=f"declare {between.to_user_string()} as a table, or take {behind[0]} into another project",
                )


def _inputs(asset: dg.AssetsDefinition | dg.AssetSpec) -> dict[dg.AssetKey, set[dg.AssetKey]]:
    if isinstance(asset, dg.AssetSpec):
        return {asset.key: {dep.asset_key for dep in asset.deps}}
    return {key: set(asset.asset_deps[key]) for key in asset.keys}


def _reached(
    start: dg.AssetKey, readers: Readers, others: set[dg.AssetKey], tables: dict[dg.AssetKey, str]
) -> list[str]:
    """The tables that are made from an asset, directly or by others that are no tables."""
    seen, edge = {start}, {start}
    while edge:
        edge = {key for one in edge for key in readers.get(one, ()) if key in others or key in tables} - seen
        seen |= edge
        edge -= set(tables)
    return sorted(tables[key] for key in seen if key in tables)
