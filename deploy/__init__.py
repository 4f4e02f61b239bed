"""Running the servers: a local stack of plain processes, and the files for Docker Compose.

    stack/    `konverse stack`: Kafka and Redis on free ports, with a directory of their own
    servers/  how each server is configured, started and ended
    java/     a Java runtime and Kafka's jars, found or fetched
    host/     ports, processes, folders, locks and what can go wrong with them
    cli       the commands

Nothing in the library imports this folder: konverse runs against any Kafka. The stack is for developers, tests and
demos, so it starts in a second, keeps its data when asked to, and never touches servers that it did not start. It
ends processes by pid and identity, not by name.

`compose.yaml` and the Dockerfile describe the same system in containers. `tests/compose` builds and tries it.
"""
