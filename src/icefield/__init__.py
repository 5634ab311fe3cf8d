"""icefield: a lakehouse in one Python package. Declaring is cheap: importing this starts and loads nothing heavy."""

import importlib
from typing import TYPE_CHECKING, Any

from icefield.version import VERSION

if TYPE_CHECKING:
    from icefield.api import Lake as Lake
    from icefield.declare import Check as Check
    from icefield.declare import Source as Source
    from icefield.declare import accumulate as accumulate
    from icefield.declare import append as append
    from icefield.declare import between as between
    from icefield.declare import by_key as by_key
    from icefield.declare import debezium as debezium
    from icefield.declare import expect as expect
    from icefield.declare import expect_table as expect_table
    from icefield.declare import files as files
    from icefield.declare import frames as frames
    from icefield.declare import fresh_within as fresh_within
    from icefield.declare import full as full
    from icefield.declare import jdbc as jdbc
    from icefield.declare import kafka as kafka
    from icefield.declare import lookup as lookup
    from icefield.declare import not_null as not_null
    from icefield.declare import one_of as one_of
    from icefield.declare import reconciles as reconciles
    from icefield.declare import ref as ref
    from icefield.declare import references as references
    from icefield.declare import setting as setting
    from icefield.declare import sql as sql
    from icefield.declare import table as table
    from icefield.declare import unique as unique

__version__ = VERSION

__all__ = [
    "Check",
    "Lake",
    "Source",
    "accumulate",
    "append",
    "between",
    "by_key",
    "debezium",
    "expect",
    "expect_table",
    "files",
    "frames",
    "fresh_within",
    "full",
    "jdbc",
    "kafka",
    "lookup",
    "not_null",
    "one_of",
    "reconciles",
    "ref",
    "references",
    "setting",
    "sql",
    "table",
    "unique",
]


def __getattr__(name: str) -> Any:  # PEP 562: Lake needs the whole product, and a command has to hear Ctrl-C first
    if name not in __all__:
        raise AttributeError(f"module 'icefield' has no attribute {name!r}")
    found = getattr(importlib.import_module("icefield.api" if name == "Lake" else "icefield.declare"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
