"""The life of a query, seen from the server: pools, desired state, reconcile, results of interactive queries."""
