"""pgstream: a streaming SQL database that any PostgreSQL client can talk to."""

__version__ = "0.1.0"
