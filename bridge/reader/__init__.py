"""RECEIVE: one process's share of a queue, handed out as transactions.

    for transaction in broker.reader("Orders"):
        with transaction:
            for message in transaction:
                transaction.send(message.dialog, "Receipt", b"…")

A transaction holds the ready messages of one conversation group. Groups come in order of priority and then of age, and
no two handlers have the same group at a time. Everything that a handler does is in one COMMIT with the messages that it
has received. If the handler raises, none of its work is committed, and its messages wait as before.

The laws:

- The consumer group only suggests which partitions a reader takes; the journal decides who owns them. Two readers that
  both believe they own a partition do no harm: one of them learns the truth with its next append. A reader may also
  claim a partition that the group has assigned to a dead reader.
- A reader has no thread of its own for its owners: each call that asks for a transaction drives them as well. So a
  reader with one thread does nothing for its owners while a handler works.
- Two locks: `_pumping` is held by the one thread that waits for new data, `_lock` by a thread that changes owners.
- A partition is given back when its finished work is committed and the release is in the journal. After a loss,
  work that was not committed is discarded, and the next owner delivers the messages again.

Drivers: iteration, `Reader.run`, RECEIVE WHERE (`Reader.receive`), `konverse run` through activations, and
`Reader.keep_up` in threads that wait for something else.

    reader                iteration, `run`, batches, RECEIVE WHERE, `settle` and `close`
    assignment            which partitions this process takes, and when it lets one go
    handlers              threads that call a handler: a failure rolls back, and the work goes on
    activation            which handler answers which queue: `@app.activate`
    procedures            which functions can be handlers
    operations            commands of operators on conversations of this reader
    orphans               partitions whose owner is dead or has left
    substitutes           readers for queues that services have left
    drain_check           whether anything waits in a queue, whichever process owns its partitions
    session_timeout       warns of a long session timeout: the partitions of a killed reader wait that long
    skipped_transactions  transactions that were handed out but never entered
    join_wait             when a new reader may report that nothing waits
    message_wait          when an iteration with a `timeout` ends
    readers               the open readers of a broker, and which of them owns a partition
    fire_and_forget       a warning for dialogs that are ended without waiting for a reply
"""
