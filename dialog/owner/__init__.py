"""One process's hold on one partition: recover, claim, hand out, commit, send, step down.

    RECOVERING -> CLAIMING -> READING_BACK -> LEADING      FOLLOWING -> RECOVERING
    any -> STOPPED: overtaken, or an outcome is unknown    any -> HALTED: the logs contradict each other, or a bug

An `Owner` recovers the state from both logs and appends a CLAIM with the next epoch. It leads when the CLAIM counts.
From then on it hands conversation groups out to handlers, puts their finished work into COMMITs, and copies what
COMMITs send to other partitions. A stopped owner is thrown away; the next one folds the journal.

The laws, which make this safe without a lock service:

- A COMMIT counts unread only when Kafka acknowledges it at exactly the offset behind the last verified record. At any
  other offset the owner reads what stands between and judges it like every other reader (M65, M66).
- An owner that does not learn the outcome of an append stops (M67). It never repeats the append.
- One append to the journal is on its way at a time (M68).
- Nothing leaves the partition before its COMMIT is known to count (M70).
- A group is with one handler at a time. It stays locked until the COMMIT with the handler's work is applied.
- The owner's clock decides when to write, never what is true.

The machine does no I/O: `step(event, now_ms)` returns effects. Its drivers are `bridge.owner.driver`, with threads and
confluent-kafka, and `tests.kit.simulator`. Handing out, committing and sending overlap; only the journal is sequential,
so a slow handler delays no other group.

    owner         the machine: events in, effects out
    events        the events and effects, and the phases
    staging       which group a handler gets next, and what goes into the next COMMIT
    handing_out   the partitions of one process: which of them hands out the next group
    locks         MOVE CONVERSATION: which transaction holds which groups
    emitter       copies the outputs to their destinations, in order and within a window
    recovery      from a snapshot and the logs to the state
    poison        failed attempts, and groups that kill their process
    timekeeping   what is due because time passes: signs of life, timers, pruning
    commands      what operators order: suspend, resume, skip, end
    relocations   endpoints that move to another partition
    drops         conversations that end because their service or contract was dropped
    snapshots     when a snapshot is made, and what may be deleted then
    view          what Redis shows of a partition
    settings      settings of an owner, and the turns of a process's owners after a crash
"""
