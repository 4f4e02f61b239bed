"""The fold: makes the state of a partition from its journal and its data log.

    state = fold(journal, data)

The journal is the order of everything. Whether a journal record counts depends on the records before it alone:

    CLAIM   counts when its epoch is one above that of the last CLAIM that counts, and it names this log
    COMMIT  counts when it has the epoch and claim id of the last CLAIM that counts, and the next number

A COMMIT that counts is folded in two steps. First the fold ingests the data log up to the COMMIT's `ingest_to`: it
takes each writer's records once and in order, and the rule of each kind changes the state. Then it applies the COMMIT's
operations: what the handlers whose work the COMMIT holds have begun, received, sent and ended.

The laws:

- Equal logs give equal states, in whatever pieces they are read (M1, I3). The fold uses no clock, no I/O, no
  randomness, no catalog and no set order.
- A record that does not count changes nothing (M26). So the records of a paused process do no harm, however late they
  arrive.
- A COMMIT's data is ingested exactly as far as the COMMIT says, before its operations are applied (M2).
- Logs that contradict each other halt the partition (PartitionHalted). The fold neither guesses nor repairs.

`dialog.owner` drives the fold: while it recovers, while it follows, and while it leads. A leading owner ingests ahead
of its next COMMIT. It applies its own COMMIT with the same `apply` that replays it later.

    journal            which journal records count, and COMMITs put together from their parts
    fold               runs both logs in the order of the journal, and says which data it needs next
    ingest             data records into state
    apply              the operations of a COMMIT into state
    snapshot           freezes a state into bytes, and restores it
    snapshot_sections  the sections of those bytes, apart from endpoints and messages

A fold may start at a snapshot instead of the beginning of the logs. It arrives at the same state, so old records can be
deleted.

The verifier folds the same logs with separate code (`bridge.verifier.fold`). When the two states differ, one of the two
is wrong, and the simulator stops. A change of the fold changes the protocol: the second fold, the Spark reader, the
golden journals and docs/protocol.md must follow.
"""
