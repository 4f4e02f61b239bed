"""Drivers of owners: they carry out the effects that `dialog.owner` decides on, and report outcomes as events.

An `Owner` in `dialog` decides everything about one partition of a queue: when to claim it, what to commit, what to
send, when to step down. It does no I/O. `OwnerDriver` gives the owners of one reader their Kafka clients: each effect
becomes a call (append these records, read this range, delete below these offsets), and its outcome becomes the event of
the owner's next step.

The laws:

- A driver makes no decisions. It appends the records that the owner asks for and reports the offset that Kafka
  assigned, or that the outcome is unknown. It never repeats an append: whether to try again is a decision, which the
  owner makes after it has read the log.
- One step at a time. The owners of a reader are stepped with the reader's lock held. Reading the catalog for changes
  and searching journals for a conversation group may take long: both run without the lock and change no owner.
- Outputs are reported as delivered when the producer has run empty without a failure and their topics are still those
  of their queues. After a failure the producer is replaced, and all outputs not yet reported are emitted again.
- An owner that has stopped or halted never resumes. The reader learns the reason from `OwnerDriver.stopped`, drops the
  owner, and may create another one, which folds the journal again.

`bridge.reader` uses `OwnerDriver`: it takes partitions over, feeds data to them, calls `pump`, and gives them back. The
simulator (`tests.kit.simulator`) drives the same owners with drivers of its own. Standby followers and truncation have
threads of their own.

    driver           the owners of one reader: effects out, outcomes in
    journal          appends to the journals, and reports the outcomes
    logs             reads ranges of logs, as events
    outputs          outputs of commits: one producer for all partitions of a reader
    snapshots        writes snapshots; deletes the records that they make superfluous
    effects          calls the driver's method for each effect
    follower         reads a partition's state without claiming it: for tools, queries and searches
    standby          followers of partitions that other processes own, so that a take-over is quick
    catalog_changes  applies DROP and ALTER to open conversations; checks a queue's STATUS
    group_locator    finds the partition of a conversation group
    log_starts       notices deletions from the logs of the queue while it is read
    sender_notifier  notifies the sender of this process of dialogs that their peers have ended
    alarms           logs the alarms of an owner
    closing_log      logs partitions that a closing reader could not release
"""
