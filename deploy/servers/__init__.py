"""Servers as processes: their configuration, their start and their end.

    launcher       starts a server, waits until it answers, and ends it with everything that it started
    kafka, redis   configuration, and when each of them is ready
    class_archive  an archive of loaded classes, with which Kafka starts sooner
    state          what is known of a stack on disk, for commands that come later

A server is ready when it answers a request, not when its port is open. It is ended by SIGTERM, then by SIGKILL, and
its process group with it. What it wrote to its log explains a failure; the error shows the last lines.
"""
