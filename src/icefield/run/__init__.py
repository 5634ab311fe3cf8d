"""Carries a plan out: stage, audit, publish."""
