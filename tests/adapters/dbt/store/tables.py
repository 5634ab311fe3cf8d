"""The tables of the dbt project beside this file."""

from icefield.adapters.dbt import models

models("dbt")
