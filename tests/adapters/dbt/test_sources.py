"""Published tables as sources of dbt: `sources.yml` and a profile, as text."""

from __future__ import annotations

from datetime import timedelta

import pytest

from icefield.adapters.dbt.sources import Freshness, profile_of, profile_yaml, sources_yaml
from icefield.cli.dbt import require_own
from icefield.declare import collecting, files, fresh_within, table
from icefield.errors import WrongUsage
from icefield.graph import build_graph
from icefield.query import Pin


def pin(name: str, comment: str = "", **columns: str) -> Pin:
    """A table as its metadata tells it; a column's type, and what is said of it after a bar."""
    fields = [
        {"id": number, "name": column, "type": told.partition("|")[0], "required": False, "doc": told.partition("|")[2]}
        for number, (column, told) in enumerate(columns.items(), 1)
    ]
    metadata = {
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "fields": fields}],
        "properties": {"comment": comment},
        "current-snapshot-id": 5,
        "snapshots": [{"snapshot-id": 5, "summary": {}}],
    }
    return Pin(table=name, location="", metadata=metadata, snapshot=5)


def graph_of(check=None):
    source = files("x.csv", schema="id BIGINT, day DATE")
    with collecting() as registry:

        @table("gold.days", source=source, checks=[] if check is None else [check])
        def days(rows):
            return rows

    return build_graph(registry.tables)


def test_tables_have_their_descriptions_columns_and_the_time_of_their_publish():
    text = sources_yaml(
        [pin("gold.days", "One row a day.", day="date", paid="decimal(18, 2)|in euros")], graph_of(), Freshness()
    )
    assert text.splitlines()[1:] == [
        "version: 2",
        "sources:",
        "  - name: gold",
        '    description: "Tables of the lake, schema gold."',
        "    database: lake",
        "    schema: gold",
        "    tables:",
        "      - name: days",
        '        description: "One row a day."',
        "        config:",
        """          loaded_at_query: "select published_at from lake.ops.tables where \\"table\\" = 'gold.days'\"""",
        "          freshness:",
        "            warn_after:",
        "              count: 1",
        "              period: day",
        "        columns:",
        "          - name: day",
        "            data_type: date",
        "          - name: paid",
        '            description: "in euros"',
        '            data_type: "decimal(18,2)"',
    ]


@pytest.mark.parametrize(
    ("check", "field", "limit"),
    [
        (fresh_within("id", timedelta(hours=36)), "id", "error_after: 36 hour"),
        (fresh_within("id", timedelta(days=2), otherwise="warn"), "id", "warn_after: 2 day"),
        (fresh_within("day", timedelta(seconds=90)), '"cast(day as timestamp)"', "error_after: 2 minute"),
    ],
)
def test_what_a_table_declares_of_its_freshness_is_dbts(check, field, limit):
    text = sources_yaml([pin("gold.days", id="timestamptz", day="date")], graph_of(check), Freshness())
    lines = [line.strip() for line in text.splitlines()]
    assert f"loaded_at_field: {field}" in lines
    kind, count, period = limit.replace(":", "").split()
    assert lines[lines.index(f"{kind}:") + 1 :][:2] == [f"count: {count}", f"period: {period}"]
    assert "loaded_at_query" not in text


def test_what_dbt_would_render_and_what_yaml_would_mistake_is_kept_as_it_is():
    one = pin("gold.days", 'A "{{ macro }}" and {% tag %}', on="boolean", list="long")
    text = sources_yaml([one], graph_of(), Freshness(warn_after=None))
    assert """description: "A \\"{{ '{' }}{ macro }}\\" and {{ '{' }}% tag %}\"""" in text
    assert '- name: "on"' in text
    assert "freshness" not in text


def test_the_profile_has_the_name_that_the_dbt_project_asks_for():
    assert profile_of('name: "reports"\nversion: 1\nprofile: shop\n') == "shop"
    assert profile_of("name: reports\n") == "reports"
    assert profile_yaml("shop", "..", "local", "target/shop.duckdb").startswith("shop:\n  target: lake\n")


def test_a_file_that_a_person_wrote_is_not_written_over(tmp_path):
    (tmp_path / "sources.yml").write_text("sources: []\n")
    with pytest.raises(WrongUsage, match="was not written by icefield"):
        require_own(tmp_path / "sources.yml")
    (tmp_path / "sources.yml").write_text(sources_yaml([], graph_of(), Freshness()))
    require_own(tmp_path / "sources.yml")
    require_own(tmp_path / "new.yml")
