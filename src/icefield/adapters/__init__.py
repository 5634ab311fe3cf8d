"""Interfaces of icefield to other tools; each is optional."""
