"""kill -9 at every bad moment: nothing lost, nothing doubled, and who reads a view never notices.

``rig`` runs queries in a worker and plays the engine; ``kills`` are what it suffers. ``python -m tests.stream.chaos``.
"""
