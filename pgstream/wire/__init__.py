"""The PostgreSQL frontend/backend protocol, version 3.0, as pure functions: bytes in, messages out, no I/O.

``framing`` cuts a byte stream into messages; ``frontend`` is client to server, ``backend`` server to client; ``scram``
is SCRAM-SHA-256 from both ends; ``values`` converts single values between text and binary format.
Must not know: sockets, sessions, SQL. Source: the PostgreSQL manual, chapter "Frontend/Backend Protocol".
Start reading at ``framing.Framer``.
"""
