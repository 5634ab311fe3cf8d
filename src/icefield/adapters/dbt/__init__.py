"""dbt: its models as tables of icefield (`models`), and the lake's tables as its sources (`icefield dbt sources`)."""

from icefield.adapters.dbt.declared import models as models
