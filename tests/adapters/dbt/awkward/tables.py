"""Tables of a dbt project of which icefield cannot take everything."""

from icefield.adapters.dbt import models

models("dbt")
