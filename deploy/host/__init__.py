"""The parts of the machine that a stack uses: processes, ports, folders, locks and tools.

The packages above this one use its modules one by one; no module here knows Kafka or Redis. Two rules hold. A process
is identified by its pid and its start time, so that a pid which the system reuses is never taken for a server. And no
server outlives its owner by accident: the guard, a small process between the two, ends the servers when the owner ends,
even by kill -9.

A fault of the machine (a full disk, a missing permission, a missing program) becomes a `StackError` with a text of its
own that names the path and the remedy.

Modules:

    ports      free ports of the loopback interface, and ids of clusters
    processes  processes by pid and start time: alive, signalled, ended
    spawn      servers that end with their owner, or outlive it when released
    guard      the process that ends servers and removes files when the owner ends
    folders    where the cache and the files of a stack are
    locks      locks between processes
    faults     faults of the file system as errors; the end of a log
    progress   the display of long operations
    tools      runs a build tool and reads its output
"""
