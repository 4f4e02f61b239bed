"""Batch reads and streams of a queue.

Spark drives this package: `source.KonverseDataSource` makes a reader, the driver asks it for partitions, and each task
calls `read` with one of them. A task reads the log of a partition from its start, or from a stored state, because the
records before a record decide whether it counts.

Five laws hold:

1. Reading takes nothing from the receivers of the queue. A stream commits offsets in a consumer group of its own, so
   that truncation spares the records that it has not read. It writes its states into a folder; only its speed depends
   on them, as long as the log has its start.
2. A stream gives a row once, however its log is cut into micro-batches and tasks, while the log has its start or the
   stream has its states. A restart continues after the last micro-batch of the checkpoint.
3. A row that Spark wrote appears where the log decides about its batch, with the offset and time of its writing.
   `timestamp` is the time of the record, `accepted_time` that of its acceptance; watermarks need the latter.
4. Each use of a frame is a scan of its own. Filters are not pushed into shared state, so a union, a self-join or
   `explain` sees the rows that were asked for.
5. Records that were deleted before a stream has read them are an error, or a warning with `failOnDataLoss` = `false`.
   A topic that is not the one of the queue, or of the checkpoint, raises TopicMismatch.

Modes `conversations` and `returned` are different: their tasks fold both logs of a partition, as its owner does.

    reader          `spark.read`: offsets, and one task for each partition
    stream          `spark.readStream`: micro-batches, and the position in the checkpoint
    registration    a stream's consumer group, which truncation spares
    journal, journal_stream   mode `journal`: a row for each decision of the owners
    queue_reader    the base of the two modes that fold a partition
    conversations   mode `conversations`: a row for each side of each conversation
    returned        mode `returned`: a row for each message that came back
    ledger          counts of the messages of each side, column by column
    kafka_frames    frames of Spark's own Kafka source, decoded
"""
