"""OpenLineage: tells of runs, of what each table was made of, and of its checks, to a file or an endpoint.

`[profile.NAME.openlineage]` asks for it. A run is a transaction: it is the parent of one run for each table, and these
complete when it is published, never before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from icefield.adapters.openlineage.events import Emitter
    from icefield.project import Project


def subscriber(project: Project) -> Emitter:
    """What hears of a project's runs."""
    from icefield.adapters.openlineage.events import Emitter  # noqa: PLC0415 - the one module that others need

    return Emitter(project)
