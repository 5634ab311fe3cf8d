"""icefield called from an environment that has none of its dependencies: by its command, with the standard library."""

from icefield.adapters.calling.command import Command as Command
from icefield.adapters.calling.manifest import find_root as find_root
from icefield.adapters.calling.manifest import read_manifest as read_manifest
from icefield.adapters.calling.results import TableResult as TableResult
from icefield.adapters.calling.results import table_result as table_result
