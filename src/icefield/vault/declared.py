"""What the tables of a vault have in common: where their rows come from, in which order, and how they are declared."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from icefield.declare import by_key, ref, table, unique
from icefield.declare.registry import caller
from icefield.errors import InvalidVault
from icefield.vault.hashing import hash_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column, DataFrame

    from icefield.declare import Check, Ref

#: A hash key and the columns that it is made of: {"order_hk": ["order_id"]}.
Hashes = Mapping[str, "Sequence[str]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """How a table of events tells when a change was made, in which order, and that a row is gone: Spark SQL."""

    load_date: str = "event_time"
    sequence: str = "sequence"
    deleted: str = "is_deleted"

    def stamps(self, record_source: str) -> list[Column]:
        """The columns that every row of a vault has."""
        return [
            F.expr(self.load_date).cast("TIMESTAMP").alias("load_date"),
            F.expr(self.sequence).cast("BIGINT").alias("sequence"),
            F.lit(record_source).alias("record_source"),
        ]


STAMPS = ("load_date", "sequence", "record_source")


def hashed(hashes: Hashes) -> list[Column]:
    """Hash keys as columns."""
    return [F.expr(hash_key(*columns)).alias(name) for name, columns in hashes.items()]


def keyed(source: str, keys: Sequence[str], hashes: Hashes) -> Ref:
    """An input whose key is one or several hash keys, or columns of its own."""
    return ref(source, **{key: hash_key(*hashes[key]) for key in keys if key in hashes})


def ghosts_of(ghosts: str, hk: str) -> Ref:
    """The seed table of ghost rows, by its column `hash_key`."""
    return ref(ghosts, **{hk: "hash_key"})


def ghost_rows(ghosts: DataFrame, like: DataFrame, hashes: Sequence[str]) -> DataFrame:
    """Ghost rows with the columns of others: their hash keys and stamps; whatever else there is is NULL."""
    given = {
        **dict.fromkeys(hashes, F.col("hash_key")),
        "load_date": F.col("load_date").cast("TIMESTAMP"),
        "sequence": F.lit(0).cast("BIGINT"),
        "record_source": F.col("record_source"),
    }
    kinds = {field.name: field.dataType for field in like.schema}
    return ghosts.select(*(given.get(name, F.lit(None)).cast(kinds[name]).alias(name) for name in like.columns))


def declare(
    name: str,
    build: Callable[..., DataFrame],
    inputs: Mapping[str, str | Ref],
    keys: Sequence[str],
    *,
    once: Sequence[str],
    comment: str,
    tags: Sequence[str],
    checks: Sequence[Check] = (),
) -> Callable[..., DataFrame]:
    """Declares a table whose function has these inputs as its parameters; the function is returned."""

    def computed(**frames: Any) -> DataFrame:
        return build(**frames)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    vars(computed)["__signature__"] = inspect.Signature([inspect.Parameter(one, kind) for one in inputs])
    computed.__name__ = computed.__qualname__ = name.rpartition(".")[2]
    computed.__doc__ = comment
    made = table(name, inputs=inputs, refresh=by_key(*keys), checks=[unique(*once), *checks], tags=tags)
    return made(computed)


def columns_of(option: str, given: object) -> list[str]:
    """Column names as a list; a text alone is one."""
    found = [given] if isinstance(given, str) else list(given) if isinstance(given, (list, tuple)) else []
    if not found or any(not isinstance(name, str) or not name for name in found):
        raise InvalidVault(
            f"{option}={given!r} does not name columns", where=str(caller()), remedy=f'write {option}=["id"]'
        )
    return found


def hashes_of(option: str, given: object) -> dict[str, list[str]]:
    """Hash keys and what they are made of."""
    if not isinstance(given, Mapping):
        raise InvalidVault(
            f"{option}={given!r} does not map hash keys to columns",
            where=str(caller()),
            remedy=f'write {option}={{"order_hk": ["order_id"]}}',
        )
    return {name: columns_of(f"{option}[{name!r}]", columns) for name, columns in given.items()}
