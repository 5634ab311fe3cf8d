"""`definitions`: a project as Dagster sees it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

import dagster as dg

from icefield.adapters.dagster.assets import Keys, source_specs, table_specs
from icefield.adapters.dagster.automation import automation
from icefield.adapters.dagster.between import refuse_between
from icefield.adapters.dagster.checks import Checks
from icefield.adapters.dagster.names import word
from icefield.adapters.dagster.partitions import partitions_of
from icefield.adapters.dagster.settings import PER_TABLE, Job, read_settings
from icefield.errors import WrongUsage
from icefield.project import open_project
from icefield.project.config import read_config
from icefield.run.planning import selected

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from icefield.adapters.dagster.partitions import Partitions
    from icefield.project import Project

    Asset: TypeAlias = "dg.AssetsDefinition | dg.AssetSpec"


#: What can be asked of a run beyond its selection.
_CONFIG = {
    "full_refresh": dg.Field(
        bool, default_value=False, description="Rebuild the selected tables from everything, whether it changed or not."
    )
}


def definitions(
    project: Path | str = ".",
    *,
    profile: str | None = None,
    jobs: Iterable[Job] | Literal["per table"] | None = None,
    assets: Iterable[Asset] = (),
    partitions: Partitions | None = None,
    prefix: Sequence[str] = (),
    preview: int | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    executor: dg.ExecutorDefinition | None = None,
) -> dg.Definitions:
    """The tables of a project as assets, their checks as asset checks, with the jobs that `[dagster]` names.

    `assets` are yours: they stand beside the tables and, under the key of a source, before them. `partitions` are those
    of tables that are taken in by batches. `prefix` comes before every key. `jobs`, `preview` and `partitions` are in
    place of what icefield.toml says. All tables that a run selects are one transaction; runs of a lake work one after
    the other.
    """
    opened = open_project(project, profile)
    selected(opened)  # refuses a project without tables
    settings = read_settings(read_config(opened.root, opened.profile.name).dagster)
    if jobs is not None:
        settings = replace(settings, jobs=PER_TABLE if isinstance(jobs, str) else tuple(jobs))
        _require_known(jobs)
    if preview is not None:
        settings = replace(settings, preview=preview)
    parts = (prefix,) if isinstance(prefix, str) else tuple(prefix)
    keys = Keys(prefix=parts, tables=frozenset(opened.graph.order))
    batched = partitions_of(opened, settings)
    if partitions is not None:
        batched = dict.fromkeys(batched, partitions)
    others = list(assets)
    refuse_between(opened.graph, keys, others)
    tables = _tables(opened, profile, keys, batched, settings.preview, retry_policy, backfill_policy)
    starts = automation(opened, profile, settings, keys, batched)
    known = {key for asset in others for key in (asset.keys if isinstance(asset, dg.AssetsDefinition) else [asset.key])}
    return dg.Definitions(
        assets=[tables, *source_specs(opened, keys, known), *others],
        jobs=starts.jobs,
        schedules=starts.schedules,
        sensors=starts.sensors,
        executor=executor or dg.in_process_executor,  # a process a step would start Python again for one step
    )


def _tables(
    project: Project,
    profile: str | None,
    keys: Keys,
    partitions: dict[str, Partitions],
    preview: int,
    retry_policy: dg.RetryPolicy | None,
    backfill_policy: dg.BackfillPolicy | None,
) -> dg.AssetsDefinition:
    """All tables as one multi-asset: any selection of them is one step."""
    checks = Checks(project.graph, keys)
    decorate = dg.multi_asset(
        name="_".join([*map(word, keys.prefix), word(project.name), "tables"]),  # no job may have the name of a step
        specs=table_specs(project, keys, partitions),
        check_specs=checks.specs,
        config_schema=_CONFIG,
        can_subset=True,
        retry_policy=retry_policy,
        backfill_policy=backfill_policy,
        pool=word(str(project.profile.lake)),
    )

    # Dagster looks at annotations, and does not take those that are text.
    def tables(context):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        from icefield.adapters.dagster.execution import Tables  # noqa: PLC0415 - what runs need, loading does not

        yield from Tables(
            root=project.root,
            profile=profile,
            tables={keys.table(name): name for name in project.graph.order},
            partitioned=frozenset(partitions),
            keys=keys,
            checks=checks,
            preview=preview,
        ).run(context)

    return decorate(tables)


def _require_known(jobs: object) -> None:
    if isinstance(jobs, str) and jobs != PER_TABLE:
        raise WrongUsage(f"jobs={jobs!r} is not valid", remedy='write jobs="per table", or a list of Job(...)')
