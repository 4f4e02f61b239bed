"""`konverse run`: a supervisor and the worker processes that read an application's queues.

    app          `App`: declares handlers and routers, next to the functions themselves
    process      one worker: readers of its queues, until it is stopped or the queues are drained
    supervisor   starts workers, restarts those that die, stops them

The supervisor connects once, to check the application, and then only watches processes: it holds no partition and
handles no message. Each worker gets its job as JSON on its command line. Its standard input is a pipe from the
supervisor: when the supervisor closes the pipe or dies, the worker stops. Its exit code tells the supervisor whether to
start it again.

Laws:

1. A worker that dies is started again after a pause that doubles with each death in a row, from 0.5 s to 30 s. Other
   workers keep running.
2. A death inside a handler (`bridge.runtime.presence`) does not lengthen the pause, because it can be attributed to a
   message: the next owner of the partition delivers the suspect groups a few at a time, finally one at a time, and
   suspends the group that kills (protocol.md section 7.1). Unrelated groups wait five seconds at most after each death.
3. A worker that ends with an error that a restart cannot fix (a wrong setting, a halted partition, a topic of another
   queue) ends the whole command with the exit code of that error.
4. SIGTERM and SIGINT let running handlers finish and commit within `--grace`, and partitions are given back, so that
   another reader takes them at once. If a partition was lost before all finished work was committed, the last log line
   of the worker says so. After the grace period, or at a second signal, workers are killed. Their uncommitted messages
   are redelivered.
"""
