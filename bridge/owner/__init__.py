"""Owners at work: threads and clients that carry out what `dialog.owner` decides.

    driver           the owners of one reader: effects out, outcomes in
    journal          appends, and what became of them
    logs             ranges of logs become events
    outputs          what commits send: one producer for all partitions of a reader
    snapshots        written now and then; old records are deleted behind them
    follower         a state without a claim: for tools, for questions, for the next owner
    standby          followers of partitions that others own, so that a take-over is short
    catalog_changes  DROP and ALTER under conversations that live
    group_locator    in which partition a conversation group is
    log_starts       the first offset of each log, watched while the queue is read
    end_news         what a partition hears of ends, for the sender of this process

A driver holds no opinion. It appends what it is told to, and reports the offset that Kafka gave, or that Kafka gave
none. It never repeats an append: whether to try again is a decision, and the owner takes it after it has read the
log.
"""
