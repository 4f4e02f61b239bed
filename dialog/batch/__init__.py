"""Spark writes in batches: all rows of a batch are received, or none. Pure state machines without I/O.

Spark executes a task again after a failure, and sometimes twice at once, and each execution may write different rows.
So rows are written first, and a later decision says which of them are accepted (protocol.md section 9b). Each execution
of a task is an attempt with an id of its own. Its rows go to their destinations at once and wait there, void. `Task`
reports how many rows went to which partition. `Driver` collects one report of each task and puts BATCH, which names
these attempts, into the transmission queue. The owner there decides, and sends a DECISION to every partition that the
query may have written to. In each partition the rows of the winning attempts are then accepted, in the order of tasks
and row numbers. The rows of all other attempts are dropped.

The laws:

1. A row is void until its batch is decided. Only the journal of the transmission queue decides a batch: the first BATCH
   with a batch number wins, whichever driver wrote it.
2. An attempt's id is never used again, and a task reports only when all its rows are acknowledged.
3. A driver continues only when the journal shows the decision. Its next BATCH leaves when earlier decisions have
   arrived, so no more than two batches of a query ever wait.
4. The journal keeps only the last decision of each query. A driver that reads it too late reports that the outcome is
   unknown; it never reports "not received" on a guess.

`spark.write` connects both machines to Spark; `tests.kit.simulator` drives the same classes.

    driver  one run of a query: collect reports, put BATCH, wait for the decision, continue
    task    one execution of a task: its rows with their numbers, and its report
"""
