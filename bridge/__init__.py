"""The shell: effects become calls to Kafka and Redis, outcomes become events.

Sockets, threads and clocks live here.
"""
