"""The Scala operators and sinks that run inside Spark's JVM, and how they are compiled.

Owns: the Scala sources. ``Kernel.scala`` is what Python calls; ``RecordDecoder`` reads records; ``ViewSink``,
``KafkaSink`` and ``ResultSink`` write; ``Watch`` tells what happens; ``CheckpointFiles`` keeps checkpoints.
Must not know: the catalogue, SQL text, clients. Start reading at ``Kernel.scala``; ``build.py`` makes the jar.
"""
