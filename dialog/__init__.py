"""The dialog protocol: every decision of konverse, as classes without I/O, clock or randomness.

A queue partition has two logs. Senders append messages to the data log; the owner of the partition appends its
decisions to the journal. The state of the partition is a fold of both, so two processes that read the same logs have
the same state. `docs/protocol.md` gives the rules, each with a number and a proof.

The classes here are machines. `Owner.step(event, now_ms)` takes an event (records that were read, an acknowledgement,
the time) and returns effects (append this, read that). The bridge carries out the effects with threads and sockets.
The simulator drives the same machines over a Kafka that loses, delays, doubles and reorders, so what it proves is
what runs. A decision that only a driver takes is a hole in the proof: it belongs here.

Storeys, the lowest first. A package imports only from packages below it.

    state        what a partition is: endpoints, writers, outbox, clocks. No rules
    rules        what each kind of record, and each operation of a commit, does to the state
    fold         the journal and the data log become state; snapshots of the state
    transaction  what a handler holds: the messages that it received, and its staged answers
    owner        one process's hold on one partition: recover, claim, hand out, commit, emit, step down
    session      the client that begins dialogs and sends on them
    queries      questions to a state, for operators and views
    batch        queries of Spark, whose rows are received all or not at all
    pool         conversations that are used again, and recycled

`window` stands beside them: when a record counts as acknowledged, for sessions and owners alike.
"""
