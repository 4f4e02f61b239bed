"""Writes of Spark: all rows of a batch are received, or none.

Tasks of a job run twice, die half-way and are repeated. Each execution of a task is an attempt with an id of its own.
Its rows go to their destinations at once and wait there, void. `Task` reports how many rows went where. `Driver`
collects the reports of one attempt for each task and puts BATCH into the transmission queue. The owner of that queue
decides: the first BATCH of a number wins, and a DECISION goes to every partition that the query may have written to.
There the rows of the winning attempts are received in the order of tasks and numbers. The others are dropped.

    driver   one run of a query: collect, put, look, go on. Never more than two batches wait
    task     one execution of a task: its rows with their numbers, and its report

The journal remembers the last decision of each query. A driver that looks too late cannot know what became of its
batch, and says so: it never reports "not received" on a guess.
"""
