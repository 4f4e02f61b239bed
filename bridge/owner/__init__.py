"""Drivers of owners: they carry out the effects that `dialog.owner` decides on, and report outcomes as events.

An `Owner` in `dialog` decides everything about one partition of a queue: when to claim it, what to commit, what to
send, when to step down. It does no I/O. `OwnerDriver` gives the owners of one reader their Kafka clients: each effect
becomes a call (append these records, read this range, delete below these offsets), and what comes of it becomes the
event of the owner's next step.

The laws:

- A driver takes no decision. It appends what the owner asks for and reports the offset that Kafka gave, or that the
  outcome is unknown. It never repeats an append: whether to try again is a decision, and the owner takes it after it
  has read the log.
- One step at a time. The owners of a reader are stepped with the reader's lock held. Reading the catalog for changes
  and searching journals for a conversation group may take long: both run without the lock and change no owner.
- Outputs are reported as delivered when the producer ran empty without a failure and their topics are still those of
  their queues. After a failure the producer is replaced, and everything that does not count is emitted again.
- An owner that stopped or halted stays so. The reader learns the reason from `OwnerDriver.stopped`, drops the owner,
  and may make another one, which folds the journal anew.

`bridge.reader` drives `OwnerDriver`: it takes partitions over, feeds them with data, pumps, and gives them back. The
simulator (`tests.kit.simulator`) drives the same owners with drivers of its own. Standby followers and truncation have
threads of their own.

    driver           the owners of one reader: effects out, outcomes in
    journal          appends, and their outcomes
    logs             ranges of logs become events
    outputs          outputs of commits: one producer for all partitions of a reader
    snapshots        writes snapshots; deletes old records behind them
    effects          calls the method for each effect, and for those that follow from it
    follower         a state without a claim: for tools, questions and searches
    standby          followers of partitions that others own, so that a take-over is quick
    catalog_changes  DROP and ALTER while conversations are open; a queue's STATUS
    group_locator    finds the partition of a conversation group
    log_starts       watches what is deleted from the logs of the queue while it is read
    end_news         tells the sender of this process which dialogs their peers have ended
    alarms           logs the alarms of an owner
    unreleased       logs partitions that a closing reader could not release
"""
