"""`konverse run`: the processes that answer the queues of an application.

    app          `App`: handlers and routers, declared where the functions stand
    process      one worker: readers of its queues, until it is stopped or the queues are drained
    supervisor   starts workers, starts them again, and finds out which message kills them

A worker that dies is started again after a pause that grows. When the death can be attributed to a message (the
process was in a handler), the pause begins anew, and the next owner gives suspects to handlers one at a time until
the killer is suspended. Groups that have nothing to do with it wait five seconds at most after each death.

SIGTERM lets handlers finish, within `--grace`. Partitions are given back, so that others take them at once; what
could not be given back is named in the last line.
"""
