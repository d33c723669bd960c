"""Test suites that drivers bring along, run against the PostgreSQL behind pgstream and through pgstream.

Not tests of our own, and not part of ``make test``: they are fetched from the registries when asked for
(``make test-drivers``). Start reading at ``__main__``.
"""
