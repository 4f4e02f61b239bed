"""Writes frames and streams into queues: each row is a message, received once.

Spark drives this package. `BatchWriter` and `StreamWriter` of `sink` are made in the driver, with a plan from the
catalog. Each task calls `write`: it makes records of its rows, hands them to Kafka as PENDING, and reports how many
rows went where. `commit` in the driver then puts a BATCH, which holds one report for each task, into the transmission
queue, and waits until the journal there shows which BATCH came first. The state machines are in `dialog.batch`.

Five laws hold (protocol.md section 9b):

1. All rows of a write, or of a micro-batch, are received, or none. A row is void until a DECISION accepts it.
2. A task may run twice, die, or write other rows each time. Each execution has an id that no other execution ever has,
   and for each task the rows of a single execution are valid.
3. The conversation and partition of a row are a function of the plan and the row. A key keeps its conversation through
   batches, tasks and runs, until the conversation has ended.
4. A batch is decided once under its query and number. A stream repeats a micro-batch under its number, so that its rows
   are received once, whatever dies.
5. The driver reports success only when the journal shows the decision. It must never report "not received" on a guess:
   when the outcome is not known, OutcomeUnknown names the options with which the same write can be repeated safely.

A write is not notified when a target ends a conversation: the rows come back to the queue of `from_service`. A driver
that sees this warns, and continues the keys in new conversations.

    sink            `df.write` and `df.writeStream`: tasks write, the driver decides
    plan            services, partitions, message types and ids, as the driver gives them to its tasks
    settings        the options, checked before anything is written
    checks          which columns and rows can be sent
    rows            rows of a batch as records, made column by column
    delivery        hands the records to Kafka, and waits until all of them are in their logs
    decision        BATCH, and the wait for the decision
    successions     conversations that have ended while their key is still written to
    returned_rows   rows that came back to a driver
"""
