"""One process's ownership of one partition: recover, claim, hand out, commit, send, step down.

    RECOVERING -> CLAIMING -> READING_BACK -> LEADING      RECOVERING <-> FOLLOWING
    any -> STOPPED: overtaken, or an outcome is unknown    any -> HALTED: the logs contradict each other, or a bug

An `Owner` recovers the state from both logs and appends a CLAIM with the next epoch. It leads once the CLAIM counts.
From then on it hands conversation groups out to handlers, puts their finished work into COMMITs, and copies the outputs
of COMMITs to other partitions. A stopped owner is discarded; the next one folds the journal.

The laws, which make this safe without a lock service:

- An acknowledgement from Kafka proves that a COMMIT counts only if its offset comes directly after the last verified
  record. At any other offset the owner reads the records between and judges them like every other reader (M65, M66).
- An owner that does not learn the outcome of an append stops (M67). It never repeats the append.
- One append to the journal is in flight at a time (M68).
- No output leaves the partition before its COMMIT is known to count (M70).
- Only one handler has a group at a time. The group stays locked until the COMMIT with the handler's work is applied.
- The owner's clock decides when to write. It never decides which records count or which timers are due.

When an owner dies, the consumer group or `bridge.reader.orphans` gives its partition to another process. That process
restores the last snapshot, folds the journal behind it, and appends a CLAIM. Groups that the dead owner may have handed
out are suspects: they are handed out again a few at a time, each after a TRY in the journal, until the group that kills
its process is found (`poison`). Outputs that the journal does not record as arrived are sent again.

The machine does no I/O: `step(event, now_ms)` returns effects. Its drivers are `bridge.owner.driver`, with threads and
confluent-kafka, and `tests.kit.simulator`. Handing out, committing and sending overlap; only the journal is sequential,
so a slow handler delays no other group.

    owner         the machine: events in, effects out
    events        the events and effects, and the phases
    staging       chooses the next group for a handler, and collects work for the next COMMIT
    handing_out   the partitions of one process: chooses the one that hands out the next group
    locks         locks on conversation groups; MOVE CONVERSATION locks a second one
    emitter       copies the outputs to their destinations, in order and within a window
    recovery      restores the state from a snapshot and the logs
    poison        failed attempts, and groups that kill their process
    timekeeping   duties that fall due with time: heartbeats, timers, pruning
    commands      orders of operators: suspend, resume, skip, end
    relocations   endpoints that move to another partition
    drops         conversations that end because their service or contract was dropped
    snapshots     when to make a snapshot, and which records may be deleted then
    view          the rows and the header of a partition in Redis
    settings      settings of an owner, and the turns of a process's owners after a crash
"""
