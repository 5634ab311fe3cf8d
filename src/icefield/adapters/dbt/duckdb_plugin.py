"""A plugin of dbt-duckdb: the lake as an attached database, at the version that is current when dbt runs.

    plugins:
      - module: icefield.adapters.dbt.duckdb_plugin
        config: {project: .., profile: local, database: lake}

Each table is a view on its current metadata file, so sources never name a file, which every publish replaces. The
whole dbt run sees one version of the lake. DuckDB's extensions come from wheels; nothing is downloaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dbt.adapters.duckdb.plugins import BasePlugin
from dbt_common.exceptions import DbtRuntimeError

from icefield.adapters.dbt.sources import DATABASE
from icefield.errors import IcefieldError
from icefield.lake.duckdb_scan import load_extensions
from icefield.lake.embedded import EmbeddedLake
from icefield.project.config import find_project, read_config
from icefield.query.pins import Pin, pin_now
from icefield.query.reader import create_views, quoted

if TYPE_CHECKING:
    import duckdb


class Plugin(BasePlugin):  # type: ignore[misc] # dbt-duckdb has no types
    """Attaches the lake of one project."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Finds the project; a relative path is meant from the dbt project's folder, where dbt runs."""
        self.database = str(plugin_config.get("database") or DATABASE)
        self.project = str(plugin_config.get("project") or "..")
        self.profile = plugin_config.get("profile")
        self.pins: dict[str, Pin] | None = None

    def update_connection_config(self, creds: Any, config: dict[str, Any]) -> None:
        """Whatever DuckDB misses, it does not fetch."""
        config.setdefault("autoinstall_known_extensions", "false")

    def configure_connection(self, conn: duckdb.DuckDBPyConnection) -> None:
        """Makes the views; again where dbt opens its database again, and then at the same version of the lake."""
        try:
            if self.pins is None:
                self.pins = pin_now(EmbeddedLake(read_config(find_project(self.project), self.profile).profile.lake))
            load_extensions(conn)
            current = conn.execute("SELECT current_database(), current_schema()").fetchone()
            assert current is not None
            conn.execute(f"ATTACH OR REPLACE ':memory:' AS {quoted(self.database)}")
            conn.execute(f"USE {quoted(self.database)}")
            create_views(conn, self.pins)
            conn.execute("USE " + ".".join('"' + name.replace('"', '""') + '"' for name in current))
        except IcefieldError as problem:
            raise DbtRuntimeError(str(problem)) from problem
