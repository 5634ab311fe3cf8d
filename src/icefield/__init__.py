"""icefield: a lakehouse in one Python package. Declaring is cheap: importing this starts and loads nothing heavy."""

from typing import TYPE_CHECKING, Any

from icefield.declare import Check as Check
from icefield.declare import Source as Source
from icefield.declare import accumulate as accumulate
from icefield.declare import append as append
from icefield.declare import between as between
from icefield.declare import by_key as by_key
from icefield.declare import expect as expect
from icefield.declare import expect_table as expect_table
from icefield.declare import files as files
from icefield.declare import fresh_within as fresh_within
from icefield.declare import full as full
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

if TYPE_CHECKING:
    from icefield.api import Lake as Lake

__version__ = "0.1.0"

__all__ = [
    "Check",
    "Lake",
    "Source",
    "accumulate",
    "append",
    "between",
    "by_key",
    "expect",
    "expect_table",
    "files",
    "fresh_within",
    "full",
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


def __getattr__(name: str) -> Any:  # PEP 562: Lake needs the whole product, declaring needs none of it
    if name == "Lake":
        from icefield.api import Lake  # noqa: PLC0415 - on first use only

        return Lake
    raise AttributeError(f"module 'icefield' has no attribute {name!r}")
