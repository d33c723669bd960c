"""Fuzzing of the front door: recorded sessions of real clients, changed and replayed (``make fuzz``)."""
