"""Nexmark: an auction house's people, auctions and bids, and the queries that stream processors are compared by.

``events.py`` makes the records, ``queries.sql`` has every query as pgstream runs it and as PostgreSQL answers it over
the same rows, ``suite.py`` loads and compares. Used by the tests and by ``benchmarks/nexmark.py``.
"""
