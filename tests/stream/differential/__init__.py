"""Random queries over random records: what pgstream leaves behind is what PostgreSQL computes of all records at once.

``data`` makes records. ``expressions``, ``aggregates``, ``selects``, ``windows``, ``joins``, ``ranks`` and ``queries``
make a query in both languages from one tree of their own. ``run`` runs it and compares.
``python -m tests.stream.differential --case 17`` runs one case and shows everything.
"""
