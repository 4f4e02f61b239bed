"""The servers of a stack: their configuration, their start, and the record of them on disk.

`Launcher` starts the servers of one stack, and `stack` drives it. A server is ready when it answers a request, not when
its port is open or its log says so. Each process is written to `stack.json` before the next step, so that a later
command can find and end it.

Laws:

    - The programs of a server (Java, jars, a Redis) are located before any process starts.
    - A server that dies while it starts is reported with its cause: a full disk, a taken port, or the last lines of
      its log. Only lines that this start has written count.
    - A server outlives the command that started it. `stack down`, or the end of a stack in a `with` block, ends it.
    - A class archive only speeds up a start: if it is missing or does not fit, the broker starts without it.

Modules:

    launcher       starts servers and waits until they answer
    kafka, redis   configuration and command line of each, and when it is ready
    class_archive  an archive of loaded classes, with which the broker starts sooner
    state          the state of a stack, as `stack.json` has it
"""
