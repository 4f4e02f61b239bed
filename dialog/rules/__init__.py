"""The effect of each kind of record, and of each operation of a commit, on the state of a partition.

A rule is a function over `Partition`. The rules for data records are named `on_…`: `fold.ingest` looks at the kind of
an envelope and calls the rule of that kind. `fold.apply` calls the rules for the operations of a commit. A rule keeps
nothing outside the state. A rule for a record cannot fail: a record that is not accepted bounces to its sender, is
answered, or is counted and dropped. A rule for an operation raises PartitionHalted when the commit contradicts the
state, which means that a log was changed.

    messages             MESSAGE and BEGIN: which records a conversation accepts, and which messages are rejected
    endings              END, Error, END CONVERSATION, WITH CLEANUP, and conversations that an operator gives up
    half_close           FIN: a side sends nothing more, and still receives
    replies              answers to records that are not accepted
    bounces              messages that came back to their home, and their session's decisions about them
    writers, heirs       which writers are admitted; CLOSE_WRITER, heirs, PRUNE
    groups               conversation groups and priority levels; MOVE CONVERSATION
    timers               conversation timers and lifetimes
    attempts             failed handlers, dead owners, poison messages
    relocation           an endpoint moves to another partition, and its records follow
    batches              rows that Spark writes: void until their batch is decided
    client_transactions  a client's transaction on several dialogs
    loss, holes          records that were deleted or lost before they were ingested
    accepted_loss        commits whose data was deleted: an operator gives them up

Three laws hold in all of them. Each counter of a writer is accepted once and in order (I4, I5). An endpoint that has
ended accepts nothing more (I9). A record that was acknowledged to its sender is received, comes back, or is reported
lost: it never vanishes (I6).
"""
