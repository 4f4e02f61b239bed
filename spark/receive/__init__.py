"""Receiving in bulk: a function over Arrow batches or frames answers the messages of a queue.

Here Spark is a receiver like any other: a reader of the bridge in each task (`map_arrow`, `route_arrow`) or in the
driver (`process`, `route`) owns partitions, and their commits have the answers. `spark.read`, in contrast, takes
nothing from the queue.

`mapping.Batches` drives the work. It takes a batch of transactions from the reader, asks the task about all of them at
once, and applies the task's result to each transaction. The task is `mapping.Answerer` or `routing.Classification`.

Four laws hold:

1. The received messages of a conversation group and all answers to them are one commit, or none. A process that dies
   leaves the messages in the queue, and only the function's next answer takes effect. So the function need not give the
   same answer twice.
2. A function that raises is called on halves of the batch until the group on which it fails is known. That group is
   rolled back and, after five attempts, suspended; the others are answered.
3. An error that no retry can fix ends the job with InvalidSettings, and suspends nothing: rows of a wrong shape, a
   frame that Spark cannot plan, a Spark that no longer runs.
4. A dead task or driver remains a member of the consumer group until its session times out. A reader that may follow
   a dead one waits that much longer; otherwise the messages of its partitions would be left in the queue.

While the function works, another thread lets the reader keep its partitions, commit finished work and read ahead.

    mapping       `map_arrow` in tasks, `process` in the driver
    answers       columns that a function gets, and rows of answers
    progress      the progress line of a long job
    report_board  counts of running tasks, reported to the driver through Kafka
"""
