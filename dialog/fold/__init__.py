"""Both logs of a partition become its state.

    state = fold(journal, data)

`journal` decides which records of the journal count. A CLAIM counts when it names the epoch behind the last one. A
COMMIT counts when its claim is the present one and it stands at the offset that it expects. Records of a process that
was paused do not count, whenever they arrive: every reader sees that from the log alone.

A COMMIT says two things. It ingests the data log up to an offset: `ingest` takes each record there, checks its writer
and counter, and calls the rule of its kind. Then it applies its operations: `apply` receives, sends, begins and ends
for the handlers whose work is in the commit. `Fold` runs both in the order of the journal, and says which data it
needs next.

`snapshot` freezes a state into chunks and restores it; `snapshot_sections` has the parts. A fold may begin at a
snapshot in place of the beginning of the logs, and comes to the same state. So old records can be deleted.

The verifier folds the same logs a second time, with code of its own (`bridge.verifier.fold`). When the two differ,
one of them is wrong, and the simulator stops. A change of the fold is a change of the protocol: the second fold, the
Spark reader, the golden journals and docs/protocol.md follow.
"""
