"""A local stack as an object: planned, started, watched and ended.

`LocalStack` is what the commands of `deploy.cli` and the tests use. A stack belongs to a directory: two commands with
the same directory find the same stack, and a lock decides which of them may change it. The state of the stack is in
`stack.json` there, written after each process that was started, so that no process is ever forgotten.

There are two kinds. An ephemeral stack lives in a temporary folder and ends with the process that started it, or with
another process that was named as its owner. A lasting stack keeps running when the command has returned.

Laws:

    - A start that fails ends the processes that it has started and removes the files that it has made, but no others.
    - Dead servers are started again on their own ports and data.
    - `down` deletes the servers' data, unless `--keep-data` is given; then the ports are kept as well.
    - A server that dies while it starts is reported with the end of its log.

Modules:

    stack     `LocalStack`: start, find, restart, kill and end
    plan      the servers of a new stack, and their ports
    settings  the settings of a stack
    starting  the start itself, and the cleanup of a failed start
    status    whether each server runs, since when, and where
    follow    the servers' logs, from their end and as they grow
"""
