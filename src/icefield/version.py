"""The version of the package, for whoever must not import the rest of it."""

from __future__ import annotations

VERSION = "0.1.0"
