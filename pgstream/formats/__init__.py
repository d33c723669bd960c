"""What the bytes of records mean beyond their columns: schemas, and the registries that keep them.

Owns: Avro schemas as columns and back, the REST protocol of schema registries, their connections in two spellings.
Must not know: stores, statements, Spark. The bytes themselves are read and written in the JVM
(``spark/kernel/formats``).
"""
