"""Pools on a Spark cluster. Not part of ``make test``: ``make test-cluster`` runs these, and others on a cluster."""
