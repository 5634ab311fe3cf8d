"""Rejected rows that people repair, replay or discard."""
