"""A project's tables as Dagster assets: `defs = icefield.adapters.dagster.definitions("pipelines/taxi")`.

Dagster shows and starts what icefield declares and does; nothing is declared twice. Loading reads the cached graph and
starts no JVM. Whatever a Dagster run selects is one transaction of icefield.
"""

import importlib.util

from icefield.errors import MissingPackage

if importlib.util.find_spec("dagster") is None:
    raise MissingPackage("dagster is not installed", remedy="pip install 'icefield[dagster]'")

from icefield.adapters.dagster.definitions import definitions as definitions
from icefield.adapters.dagster.settings import Job as Job
