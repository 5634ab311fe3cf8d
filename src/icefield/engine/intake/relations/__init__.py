"""Rows of databases' relations: asked for news by a client of the database, read by Spark through JDBC."""
