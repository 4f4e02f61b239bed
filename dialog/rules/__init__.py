"""What each kind of record, and each operation of a commit, does to the state of a partition.

A rule is a function over `Partition`. Rules for data records begin with `hear_`: `fold.ingest` looks at the kind of
an envelope and calls the one that fits. Rules for operations of a commit are called by `fold.apply`. No rule keeps
anything beside the state, and no rule can fail: what a record may not do comes back to its sender, or is counted and
dropped.

    messages         MESSAGE and BEGIN: who may speak on a conversation, and what is rejected
    endings          END, Error, END CONVERSATION, and WITH CLEANUP
    half_close       FIN: the number of messages that a side has sent before its end
    replies          what a partition answers to records that it does not accept
    bounces          messages that come back to their home, and what their session decides about them
    writers          who may be heard; CLOSE_WRITER, heirs, PRUNE
    groups           conversation groups and priority levels; MOVE CONVERSATION
    timers           conversation timers and lifetimes
    attempts         handlers that failed, owners that died, poison messages
    relocation       an endpoint moves to another partition, and its records follow
    batches          rows that Spark writes: void until their batch is decided
    client_transactions  what a client does on several dialogs at once
    loss, holes, accepted_loss   records that were deleted before they were received
    reused_ids       ids that a caller chose again

Three laws hold in all of them. A counter of a writer is taken once and in order (I4, I5). An endpoint that has ended
hears nothing more (I9). Whatever was acknowledged to a sender is received, comes back or is reported: it never
vanishes (I6).
"""
