"""Frames and streams into queues: each row is a message, received once.

    sink            `df.write` and `df.writeStream`: tasks write, the driver decides
    plan            what a driver tells its tasks: queues, services, conversations
    settings        the options, checked before anything is written
    checks          which columns and rows can be sent
    rows            rows of a batch as records, made column by column
    delivery        hands them to Kafka, and knows when all of them are there
    decision        BATCH, and who has won
    successions     conversations of keys that ended while their key is written to
    returned_rows   rows that came back to a driver that goes on

All rows of a write are received, or none. Tasks may run twice, die and be repeated: rows wait at their destination
until the owner of the transmission queue has decided which attempts count (`dialog.batch`). A stream repeats a
micro-batch under its number, so that it is received once whatever dies.

When the outcome is not known the error says so, and names the options with which the same write can be repeated
safely.
"""
