"""The e-commerce project in Dagster; its jobs are in icefield.toml.

dagster dev -f orchestration/dagster_definitions.py
"""

from pathlib import Path

from icefield.adapters.dagster import definitions

defs = definitions(Path(__file__).resolve().parents[1])
