"""The fold: computes the state of a partition from its journal and its data log.

    state = fold(journal, data)

The journal defines the order of everything. Whether a journal record counts depends only on the records before it:

    CLAIM   counts when its epoch is the last counting CLAIM's plus one, and it names this log
    COMMIT  counts when it has the epoch and claim id of the last counting CLAIM, and the next number

A COMMIT that counts is folded in two steps. First the fold ingests the data log up to the COMMIT's `ingest_to`: it
takes each writer's records once and in order, and the rule for each kind of record changes the state. Then it applies
the COMMIT's operations: the begins, receives, sends and ends of the handlers whose work the COMMIT holds.

The laws:

- Equal logs give equal states, however the reads are split (M1, I3). The fold uses no clock, no I/O, no randomness and
  no catalog, and does not depend on the iteration order of sets.
- A record that does not count changes nothing (M26). So the records of a paused process do no harm, however late they
  arrive.
- The fold ingests data exactly as far as a COMMIT says before it applies the COMMIT's operations (M2).
- Logs that contradict each other halt the partition (PartitionHalted). The fold neither guesses nor repairs.

`dialog.owner` drives the fold while it recovers, follows and leads. A leading owner ingests ahead of its next COMMIT.
It applies its own COMMIT with the same `apply` that later replays it.

    journal            decides which journal records count, and reassembles COMMITs from their parts
    fold               runs both logs in the order of the journal, and reports which data it needs next
    ingest             applies data records to the state
    apply              applies the operations of a COMMIT to the state
    snapshot           freezes a state into bytes, and restores it
    snapshot_sections  the sections of those bytes, apart from endpoints and messages

A fold may start from a snapshot instead of the beginning of the logs. It reaches the same state, so old records can be
deleted.

The verifier folds the same logs with separate code (`bridge.verifier.fold`). When the two states differ, one of the two
is wrong, and the simulator stops. A change of the fold is a change of the protocol: the second fold, the Spark reader,
the golden journals and docs/protocol.md must follow.
"""
