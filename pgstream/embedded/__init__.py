"""Things found or started locally: PostgreSQL, Java, jars, a Kafka broker.

Owns: processes of other programs that live and die with ours, and the data directory's lock and version.
Must not know: the catalogue, SQL, sessions. Start reading at ``postgres.open_postgres``; the others are ``java``,
``jars`` and ``kafka``.
"""
