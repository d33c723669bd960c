"""The front door: sockets, sessions and the life of the process.

``main`` wires the process; ``listener`` accepts; ``startup`` authenticates; ``session`` decides for each client message
whether it is PostgreSQL's (relayed untouched) or ours; ``simple`` and ``extended`` answer ours; ``backend`` is the
session's own connection to PostgreSQL; ``flight`` counts what PostgreSQL still owes; ``results`` sends our rows.
Start reading at ``session.ClientSession``.
"""
