"""Where the driver's own work ends and Spark's begins; tests pass other values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of what the driver reads and holds."""

    #: Landed bytes that threads of the driver read while Spark starts; more are read by Spark's tasks.
    driver_bytes: int = 1 << 30
    #: How much of a file a worker reads at a time.
    split_bytes: int = 32 << 20


LIMITS = Limits()
