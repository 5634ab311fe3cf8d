"""Promises: what a refresh kind requires of a function, proven from Spark's plan, tried on data, or refused."""
