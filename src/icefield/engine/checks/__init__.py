"""Rows that break a check, and checks of whole tables."""
