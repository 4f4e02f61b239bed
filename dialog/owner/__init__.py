"""One process's hold on one partition.

An `Owner` recovers the state, claims the partition, hands groups out to handlers, commits their work, sends what the
commits say, and steps down as soon as it cannot be sure. Two rules make that safe without any lock service. Nothing
counts before Kafka has acknowledged it at exactly the offset behind the last verified record. And an owner that does
not know an outcome stops at once: the next claim, its own included, folds the journal and knows.

    RECOVERING -> CLAIMING -> READING_BACK -> LEADING        any -> STOPPED        a contradiction -> HALTED

    owner         the machine itself; `step(event, now_ms)` returns effects
    events        what it hears, and what it wants done
    staging       which group a handler gets next, and what goes into the next commit
    locks         which transaction holds which group, MOVE between groups included
    emitter       outputs on their way, as numbered streams with a window
    recovery      from a snapshot and the logs to a state
    poison        after deaths: one suspect at a time, until the message that kills is found
    timekeeping   timers, lifetimes, pruning: what time asks of an owner
    commands      what operators order: suspend, resume, skip, end
    relocations, drops   ALTER and DROP SERVICE under conversations that live
    snapshots, view      what an owner writes beside the journal

Drivers: `bridge.owner.driver` with threads and confluent-kafka, and `tests.kit.simulator`. A handler that runs holds
no owner back: handing out, committing and sending overlap, and only the journal is a sequence.
"""
