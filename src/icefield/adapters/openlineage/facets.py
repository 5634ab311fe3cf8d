"""OpenLineage's facets, by the versions of its specification that icefield writes.

They are plain JSON, without OpenLineage's client: environments of orchestrators often have their own version of it.
"""

from __future__ import annotations

from typing import Any

import icefield

Json = dict[str, Any]

SPEC = "https://openlineage.io/spec"
EVENT_SCHEMA = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
#: What writes these events.
PRODUCER = f"urn:icefield:{icefield.__version__}"
#: Each facet's name in an event, with its version and the name of its schema.
VERSIONS = {
    "catalog": ("1-1-0", "CatalogDatasetFacet"),
    "columnLineage": ("1-2-0", "ColumnLineageDatasetFacet"),
    "dataQualityAssertions": ("1-1-0", "DataQualityAssertionsDatasetFacet"),
    "documentation": ("1-1-0", "DocumentationJobFacet"),
    "errorMessage": ("1-0-1", "ErrorMessageRunFacet"),
    "jobType": ("2-0-4", "JobTypeJobFacet"),
    "outputStatistics": ("1-0-2", "OutputStatisticsOutputDatasetFacet"),
    "parent": ("1-2-0", "ParentRunFacet"),
    "processing_engine": ("1-1-1", "ProcessingEngineRunFacet"),
    "schema": ("1-2-0", "SchemaDatasetFacet"),
    "symlinks": ("1-0-1", "SymlinksDatasetFacet"),
    "tags": ("1-0-0", "TagsRunFacet"),
    "version": ("1-0-1", "DatasetVersionDatasetFacet"),
}


def facet(name: str, /, **fields: Any) -> Json:
    """One facet under its name, for a mapping of facets."""
    version, schema = VERSIONS[name]
    told = {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/facets/{version}/{schema}.json#/$defs/{schema}"}
    return {name: {**told, **fields}}
