"""The dialog protocol: every decision of konverse, as classes without I/O, clock or randomness.

A queue partition has two logs. Senders append messages to the data log; the owner of the partition appends its
decisions to the journal. The state of the partition is a fold of both logs, so two processes that read the same logs
have the same state. `docs/protocol.md` gives the rules, each with a number and a proof.

The classes here are state machines. `Owner.step(event, now_ms)` takes an event (records that were read, an
acknowledgement, the time) and returns effects (append this record, read that range). The bridge carries out the effects
with threads and sockets. The simulator drives the same machines over a Kafka that loses, delays, duplicates and
reorders requests, so the code under proof is the code in production. A driver must not decide anything: the simulator
would not see that decision.

Layers, lowest first. A package imports only from packages below it.

    state        the state of one partition: endpoints, writers, outbox, clocks. Data without rules
    rules        the effect of each kind of record, and of each operation of a commit, on the state
    fold         turns the journal and the data log into state; snapshots of the state
    transaction  a handler's transaction: the messages that it received and the answers that it staged
    owner        one process's ownership of one partition: recover, claim, deliver, commit, emit, step down
    session      the client that begins dialogs and sends on them
    queries      read-only questions about a state, for operators and views
    batch        Spark queries that write in batches: all rows of a batch are accepted, or none
    pool         open conversations that are reused, and recycled after a time

`window` is beside them. It decides when a record counts as acknowledged, for sessions and owners alike.
"""
