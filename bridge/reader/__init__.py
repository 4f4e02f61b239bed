"""RECEIVE: one process's share of a queue, handed out as transactions.

    for transaction in broker.reader("Orders"):
        with transaction:
            for message in transaction:
                transaction.send(message.dialog, "Receipt", b"…")

A consumer group suggests which partitions a reader takes. The group is a hint and no lock: ownership is decided in
the journal. So two readers that both believe in a partition do no harm, and one of them learns it with its next
append.

    reader          iteration, `run`, timeouts, what `close` gives back
    assignment      which partitions this process takes, and when it lets one go
    handlers        threads that call a handler: a failure rolls back, and the group rests
    activation      which handler answers which queue: `@app.activate`
    operations      what operators do about conversations of this reader
    orphans         partitions whose owner does nothing
    substitutes     queues that services have left, looked after until they are empty
    drained         whether anything waits in a queue, whoever owns it
    passed_over     transactions that nobody entered
    joining         from when on "nothing waits" is true
    fire_and_forget a warning for dialogs that are ended without waiting

Groups of a conversation are received by one handler at a time, in order of priority and then of age. Everything that
the handler did is in one COMMIT with what it received.
"""
