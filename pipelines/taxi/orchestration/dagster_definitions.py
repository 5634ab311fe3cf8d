"""The taxi project in Dagster, a month a partition: download, landing, the tables, the report on their snapshots.

    dagster dev -f orchestration/dagster_definitions.py

`TAXI_BASE_URL` is another place than the TLC's to download from.
"""

import datetime as dt
import filecmp
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from icefield import Lake
from icefield.adapters.dagster import definitions

PROJECT = Path(__file__).resolve().parents[1]
sys.path.append(str(PROJECT))
from fetch import BASE_URL, SERVICES, ZONES, fetch, remotes  # noqa: E402 (beside the tables)

MONTHS = dg.MonthlyPartitionsDefinition(start_date="2023-01", fmt="%Y-%m", end_offset=1)
DOWNLOADS, LANDING, REPORT = PROJECT / "downloads", PROJECT / "landing", PROJECT / "reports" / "snapshots.md"
#: The TLC publishes a month about two months after its end.
DELAY = 2
REPORTED = ("raw.yellow_trips", "raw.green_trips", "marts.fct_daily_trips", "marts.fct_green_daily_trips")


@dg.asset(
    key=["downloads", "months"],
    partitions_def=MONTHS,
    group_name="download",
    kinds={"python", "parquet"},
)
def months(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Both services' files of a month and the zones, as the TLC has them; what is there already is not fetched again."""
    month = context.partition_key
    wanted = remotes(os.environ.get("TAXI_BASE_URL", BASE_URL), SERVICES, month, month)
    if problems := fetch(DOWNLOADS / month, wanted):
        raise dg.Failure("\n".join(problems))
    size = sum((DOWNLOADS / month / remote.name).stat().st_size for remote in wanted)
    return dg.MaterializeResult(metadata={"files": len(wanted), "bytes": size})


@dg.multi_asset(
    specs=[
        *(
            dg.AssetSpec(["landing", f"{service}_tripdata"], deps=[months], partitions_def=MONTHS, kinds={"parquet"})
            for service in SERVICES
        ),
        dg.AssetSpec(["landing", "taxi_zone_lookup"], deps=[months], kinds={"csv"}),
    ],
    group_name="landing",
    can_subset=True,
)
def landing(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
    """What was downloaded, where icefield looks for it: looked into, and whole at once."""
    if (LANDING / "manifest.json").exists():
        raise dg.Failure(
            f"{LANDING} holds generated months, and real ones do not belong beside them: remove the folder."
        )
    month = context.partition_key
    for key in sorted(context.selected_asset_keys):
        name = ZONES if key.path[-1] == "taxi_zone_lookup" else f"{key.path[-1]}_{month}.parquet"
        file = DOWNLOADS / month / name
        metadata = {"file": dg.MetadataValue.path(str(LANDING / name)), "rows": rows_of(file)}
        yield dg.MaterializeResult(asset_key=key, metadata={**metadata, "changed": land(file)})


def rows_of(file: Path) -> int:
    """How many rows a file has; one that is no such file fails here, before any table sees it."""
    if file.suffix == ".parquet":
        from pyarrow.parquet import read_metadata

        return int(read_metadata(file).num_rows)
    with file.open(encoding="utf-8") as lines:
        return sum(1 for _ in lines) - 1


def land(file: Path) -> bool:
    """Puts a file into the landing folder; False if it is there already. It costs no room: both are one file."""
    LANDING.mkdir(exist_ok=True)
    target, hidden = LANDING / file.name, LANDING / f".{file.name}.part"
    if target.exists() and filecmp.cmp(file, target, shallow=False):
        return False
    hidden.unlink(missing_ok=True)
    try:
        os.link(file, hidden)
    except OSError:  # another file system
        shutil.copy2(file, hidden)
    hidden.replace(target)
    return True


@dg.asset(
    key=["reports", "snapshots"],
    deps=[dg.AssetKey(name.split(".")) for name in REPORTED],
    group_name="reports",
    kinds={"python", "markdown"},
)
def snapshots() -> dg.MaterializeResult:
    """Every version of the tables: when and by which run it was published, the month it took in, how it grew."""
    lake, lines, count = Lake(PROJECT), ["# Snapshots"], 0
    for name in REPORTED:
        versions = lake.table(name).history()
        count += len(versions)
        lines += [
            "",
            f"## {name}",
            "",
            "| published | run | month | added | removed | rows |",
            "|---|---|---|--:|--:|--:|",
        ]
        lines += [
            f"| {one.published_at:%Y-%m-%d %H:%M:%S} | {one.run} | {one.batch} | {one.rows_added:,}"
            f" | {one.rows_removed:,} | {one.rows_total:,} |"
            for one in versions
        ]
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return dg.MaterializeResult(
        metadata={"versions": count, "report": dg.MetadataValue.md("\n".join(lines)), "file": str(REPORT)}
    )


month = dg.define_asset_job(
    "month",
    selection=dg.AssetSelection.all(),
    description="A month from the TLC's server to the report; its tables are one transaction.",
)


@dg.schedule(job=month, cron_schedule="0 6 1 * *", execution_timezone="America/New_York")
def first_of_the_month(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """The month that the TLC has published last."""
    today = context.scheduled_execution_time
    number = today.year * 12 + today.month - 1 - DELAY
    return dg.RunRequest(partition_key=dt.date(number // 12, number % 12 + 1, 1).strftime("%Y-%m"))


defs = dg.Definitions.merge(
    definitions(PROJECT, partitions=MONTHS, assets=[months, landing, snapshots]),
    dg.Definitions(jobs=[month], schedules=[first_of_the_month]),
)
