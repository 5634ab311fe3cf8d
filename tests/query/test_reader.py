"""A reader sees one version of the whole lake, now or as a run left it, and can reach and change nothing else."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from icefield.errors import LakeDamaged, NoLake, NoSuchTable, NothingPublished, QueryFailed, QueryRefused, UnknownRun
from icefield.lake import metadata as meta
from icefield.lake.branch import Branch, new_branch_name
from icefield.lake.embedded import EmbeddedLake
from icefield.lake.ops import Journal
from icefield.query import Reader, open_reader
from lakes import new_lake, open_branch, publish, told, write

FIRST, SECOND, FAILED = "20260101T000000-aaaaaa", "20260102T000000-bbbbbb", "20260103T000000-cccccc"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> EmbeddedLake:
    """Two published runs, the second with a table more, and a failed run that is kept."""
    lake = new_lake(tmp_path_factory.mktemp("query") / "lake")
    publish(lake, {"bronze.orders": [1, 2]}, FIRST)
    publish(lake, {"bronze.orders": [3], "gold.totals": [6]}, SECOND)
    staged = open_branch(lake, FAILED)
    write(staged, "bronze.orders", -1)
    staged.abandon(keep=True)
    record = Branch(lake, new_branch_name(), "20260103T000001-dddddd")
    record.publish({}, told(FAILED, "failed"))
    return lake


@pytest.fixture(scope="module")
def reader(lake: EmbeddedLake) -> Iterator[Reader]:
    with open_reader(lake) as reader:
        yield reader


def values(lake: EmbeddedLake, table: str = "bronze.orders", **version: str) -> list[int]:
    with open_reader(lake, **version) as reader:
        return sorted(value for (value,) in reader.table(table).rows())


def ask(lake: EmbeddedLake, query: str, **version: str) -> list[tuple[object, ...]]:
    with open_reader(lake, **version) as reader:
        return reader.query(query).rows()


def test_every_table_is_a_view_under_its_name(lake: EmbeddedLake) -> None:
    assert values(lake) == [1, 2, 3]
    assert ask(lake, "SELECT value FROM gold.totals") == [(6,)]
    assert ask(lake, "SELECT run, status FROM ops.runs ORDER BY run") == [
        (FIRST, "published"),
        (SECOND, "published"),
        (FAILED, "failed"),
    ]


def test_ops_tables_tells_of_every_table_by_which_run_it_stands(lake: EmbeddedLake) -> None:
    told = ask(lake, 'SELECT "table", run, rows, files, len(columns) FROM ops.tables WHERE "table" NOT LIKE \'ops.%\'')
    assert told == [("bronze.orders", SECOND, 3, 2, 1), ("gold.totals", SECOND, 1, 1, 1)]
    [(published_at, metadata)] = ask(
        lake, "SELECT published_at, metadata FROM ops.tables WHERE \"table\" = 'gold.totals'"
    )
    assert published_at == dt.datetime.fromtimestamp(meta.load(metadata)["last-updated-ms"] / 1000, dt.UTC)


def test_a_reader_goes_on_seeing_the_version_it_opened(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    publish(lake, {"bronze.orders": [1]})
    with open_reader(lake) as reader:
        publish(lake, {"bronze.orders": [2]})
        assert reader.count("bronze.orders") == 1
        assert reader.query("SELECT rows FROM ops.tables WHERE \"table\" = 'bronze.orders'").rows() == [(1,)]
    assert values(lake) == [1, 2]


@pytest.mark.parametrize("moment", [FIRST, FIRST[:9]])
def test_as_of_a_run_every_table_is_as_that_run_left_it(lake: EmbeddedLake, moment: str) -> None:
    assert values(lake, as_of=moment) == [1, 2]
    assert ask(lake, "SELECT run FROM ops.runs", as_of=moment) == [(FIRST,)]
    assert ask(lake, "SELECT DISTINCT run FROM ops.tables", as_of=moment) == [(FIRST,)]
    with pytest.raises(NoSuchTable, match=r"gold\.totals"):
        ask(lake, "SELECT * FROM gold.totals", as_of=moment)


def test_as_of_a_time_is_what_was_published_by_then(lake: EmbeddedLake) -> None:
    at_ms = meta.run_published_at(meta.load(lake.pointers()["ops.runs"]), SECOND)
    assert at_ms is not None
    at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    before = at - dt.timedelta(milliseconds=1)
    assert values(lake, as_of=at.isoformat()) == [1, 2, 3]
    assert values(lake, as_of=before.isoformat()) == [1, 2]
    assert values(lake, as_of=before.replace(tzinfo=None).isoformat()) == [1, 2], "a time without a zone is UTC"
    elsewhere = before.astimezone(dt.timezone(dt.timedelta(hours=5)))
    assert values(lake, as_of=elsewhere.isoformat()) == [1, 2]


def test_as_of_holds_without_the_metadata_files_of_that_time(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    publish(lake, {"bronze.orders": [1]}, FIRST)
    old = [Path(location) for location in lake.pointers().values()]
    publish(lake, {"bronze.orders": [2]}, SECOND)
    for file in old:
        file.unlink()
    assert values(lake, as_of=FIRST) == [1]
    told = ask(lake, 'SELECT "table", run, rows FROM ops.tables ORDER BY 1', as_of=FIRST)
    assert told == [("bronze.orders", FIRST, 1), ("ops.runs", FIRST, 1)]


@pytest.mark.parametrize("keep_metadata", [True, False])
def test_as_of_has_the_columns_of_that_time(tmp_path: Path, keep_metadata: bool) -> None:
    from pyiceberg.types import StringType

    lake = new_lake(tmp_path / "lake")
    publish(lake, {"bronze.orders": [1]}, FIRST)
    old = Path(lake.pointers()["bronze.orders"])
    branch = open_branch(lake, SECOND)
    branch.prepare("bronze.orders")
    with branch.pyiceberg().load_table("bronze.orders").update_schema() as update:
        update.add_column("note", StringType())
    catalog = branch.pyiceberg()
    import pyarrow as pa

    catalog.load_table("bronze.orders").append(pa.table({"value": [2], "note": ["new"]}))
    branch.publish({"bronze.orders": {}}, told(SECOND))
    if not keep_metadata:
        old.unlink()
    assert ask(lake, "SELECT * FROM bronze.orders ORDER BY value") == [(1, None), (2, "new")]
    with open_reader(lake, as_of=FIRST) as reader:
        assert reader.table("bronze.orders").columns == ("value",)
        assert reader.query("SELECT columns FROM ops.tables WHERE \"table\" = 'bronze.orders'").rows() == [
            ([{"name": "value", "type": "long", "comment": ""}],)
        ]


def test_a_failed_run_is_read_by_its_branch_only(lake: EmbeddedLake) -> None:
    assert values(lake, run=FAILED[:12]) == [-1, 1, 2, 3]
    with pytest.raises(UnknownRun, match="failed, so it published nothing"):
        values(lake, as_of=FAILED)
    with pytest.raises(UnknownRun, match="--as-of"):
        values(lake, run=FIRST)


def test_what_cannot_be_meant_is_said_with_what_could(lake: EmbeddedLake) -> None:
    with pytest.raises(UnknownRun, match="several runs start with"):
        values(lake, as_of="202601")
    with pytest.raises(UnknownRun, match="neither a run in this lake nor a time"):
        values(lake, as_of="yesterday")
    with pytest.raises(NothingPublished, match=FIRST):
        values(lake, as_of="1999-01-01")


def test_without_a_lake_there_is_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(NoLake):
        open_reader(EmbeddedLake(tmp_path / "lake"))


def test_a_metadata_file_that_is_gone_is_named(tmp_path: Path) -> None:
    lake = new_lake(tmp_path / "lake")
    publish(lake, {"bronze.orders": [1]})
    Path(lake.pointers()["bronze.orders"]).unlink()
    with pytest.raises(LakeDamaged, match=r"bronze\.orders"):
        open_reader(lake)


@pytest.mark.parametrize("kind", ["*.parquet", "snap-*.avro", "*-m0.avro"])
@pytest.mark.parametrize("content", [None, b"Obj"])
def test_a_file_that_is_gone_or_damaged_is_named(tmp_path: Path, kind: str, content: bytes | None) -> None:
    lake = new_lake(tmp_path / "lake")
    publish(lake, {"bronze.orders": [1]})
    [file] = (lake.warehouse / "bronze").rglob(kind)
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(LakeDamaged) as found, open_reader(lake) as reader:
        reader.query("SELECT value FROM bronze.orders")
    assert found.value.where == str(file)
    assert "icefield doctor" in found.value.remedy


def test_a_table_without_a_snapshot_is_empty_and_has_its_columns(tmp_path: Path) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import DecimalType, ListType, NestedField, StringType, TimestamptzType

    lake = new_lake(tmp_path / "lake")
    branch = open_branch(lake)
    lake.catalog.add_namespace(branch.name, "silver")
    schema = Schema(
        NestedField(1, "amount", DecimalType(12, 2)),
        NestedField(2, "at", TimestamptzType()),
        NestedField(3, "tags", ListType(4, StringType(), element_required=False)),
    )
    folder = str(lake.table_folder("silver.none"))
    properties = branch.own_properties("silver.none")
    branch.pyiceberg().create_table("silver.none", schema=schema, location=folder, properties=properties)
    branch.publish({"silver.none": {}}, Journal(runs=[{"run": branch.run, "status": "published"}]))
    with open_reader(lake) as reader:
        found = reader.table("silver.none")
        assert (len(found), found.columns) == (0, ("amount", "at", "tags"))
        kinds = dict(row[:2] for row in reader.query("DESCRIBE silver.none").rows())
        assert kinds == {"amount": "DECIMAL(12,2)", "at": "TIMESTAMP WITH TIME ZONE", "tags": "VARCHAR[]"}
        assert reader.query("SELECT rows, snapshot FROM ops.tables WHERE \"table\" = 'silver.none'").rows() == [
            (0, None)
        ]


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 1) TO '{warehouse}/stolen.csv'",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{warehouse}/stolen.csv'",
        "DELETE FROM gold.totals",
        "INSERT INTO ops.tables (run) VALUES ('x')",
        "CREATE TABLE x AS SELECT 1",
        "ATTACH '{warehouse}/other.db'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "SELECT 1; DROP VIEW gold.totals",
        "SELECT * FROM read_text('/etc/hosts')",
        "SELECT * FROM read_csv('/etc/hosts')",
        "SELECT * FROM glob('/*')",
        "",
        "-- nothing",
    ],
)
def test_only_queries_over_the_lake_are_carried_out(lake: EmbeddedLake, reader: Reader, query: str) -> None:
    with pytest.raises(QueryRefused):
        reader.query(query.format(warehouse=lake.warehouse))
    assert not list(lake.warehouse.glob("stolen*"))
    assert not list(lake.warehouse.glob("other*"))


def test_no_python_variable_is_within_reach(reader: Reader) -> None:
    import pyarrow as pa

    secret = pa.table({"a": [1]})
    with pytest.raises(NoSuchTable, match="secret"):
        reader.query("SELECT * FROM secret")
    assert secret.num_rows == 1


@pytest.mark.parametrize(
    "query",
    [
        "FROM gold.totals",
        "WITH a AS (SELECT 6 AS value) SELECT value FROM a",
        "SUMMARIZE gold.totals",
        "DESCRIBE gold.totals",
        "SHOW TABLES",
        "VALUES (1)",
        "EXPLAIN SELECT * FROM gold.totals",
        "EXPLAIN ANALYZE SELECT * FROM gold.totals",
        "PIVOT gold.totals ON value USING count(*)",
    ],
)
def test_whatever_only_reads_is_answered(reader: Reader, query: str) -> None:
    assert reader.query(query).columns


@pytest.mark.parametrize("query", ["SHOW TABLES", " show tables; "])
def test_show_tables_lists_the_tables_of_the_lake(reader: Reader, query: str) -> None:
    result = reader.query(query)
    assert result.columns == ("table", "rows", "published_at")
    assert [row[0] for row in result.rows()] == sorted(reader.pins)


@pytest.mark.parametrize(
    ("query", "kind", "parts"),
    [
        ("SELECT * FROM gold.totls", NoSuchTable, ["`gold.totls`", "did you mean `gold.totals`"]),
        ("SELECT * FROM golf.totals", NoSuchTable, ["`golf.totals`", "did you mean `gold.totals`"]),
        ("SELECT * FROM ops.table", NoSuchTable, ["did you mean `ops.tables`"]),
        ("SELECT valeu FROM gold.totals", QueryFailed, ['"value"', "at `valeu", "uses DuckDB's SQL dialect"]),
        ("SELCT 1", QueryFailed, ["line 1", "uses DuckDB's SQL dialect"]),
        ("SELECT CAST('x' AS INT)", QueryFailed, ["Could not convert"]),
    ],
)
def test_what_duckdb_refuses_is_explained(reader: Reader, query: str, kind: type[Exception], parts: list[str]) -> None:
    with pytest.raises(kind) as caught:
        reader.query(query)
    for part in parts:
        assert part in str(caught.value)


def test_a_table_is_found_by_its_last_part(reader: Reader) -> None:
    assert reader.pin("totals").table == "gold.totals"
    with pytest.raises(NoSuchTable, match=r"did you mean `bronze\.orders`"):
        reader.table("bronze.order")
