"""Change data capture: from Debezium's events to typed rows, to the state of a table, and to its history.

Plain functions over DataFrames. All of them work on all events of a key at once, so that the order in which events
arrive, how they are split into runs and how often they are sent again make no difference. Spark's plan proves that:
`by_key` takes them without `trusted=True`.
"""

from icefield.cdc.events import ENVELOPE, PLACEHOLDER, key_of, parse
from icefield.cdc.states import history, latest

__all__ = ["ENVELOPE", "PLACEHOLDER", "history", "key_of", "latest", "parse"]
