"""The shell: effects become Kafka and Redis calls, their outcomes become events. Sockets, threads and clocks live here."""
