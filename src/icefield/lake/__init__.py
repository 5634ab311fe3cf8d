"""Iceberg: catalogs, branches of the whole lake, publishing, and the state that tables carry."""
