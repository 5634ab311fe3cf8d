"""Data Vault: hubs, links, satellites and point-in-time tables over captured events, each declared by one line.

Every table is computed by key from all events of that key: load dates are those of the events, so that any order and
any batching of the same events gives the same vault.
"""

from icefield.vault.hashing import UNKNOWN, hash_key, hashdiff
from icefield.vault.hubs import hub
from icefield.vault.links import link
from icefield.vault.pits import pit
from icefield.vault.satellites import satellite, status_satellite

__all__ = ["UNKNOWN", "hash_key", "hashdiff", "hub", "link", "pit", "satellite", "status_satellite"]
