"""Frames and streams of a queue.

    reader          `spark.read`: offsets, one task for each partition
    stream          `spark.readStream`: micro-batches, and what a restart goes on from
    registration    truncation spares what a registered stream has not read
    conversations   mode `conversations`: each side of each conversation
    journal, journal_stream   mode `journal`: what the owners decided
    returned        mode `returned`: messages that came back
    queue_reader    what these modes share: a task folds a partition
    ledger          what came for each side, counted column by column
    kafka_frames    frames of Spark's own Kafka source, decoded

Reading changes nothing and takes nothing from receivers. Each use of a frame is a scan of its own, so a union, a
self-join or `explain` sees the rows that were asked for: filters are not pushed into shared state.

`timestamp` is the time of the record, `accepted_time` the time at which it counted. Watermarks want the second one:
rows of a Spark write become visible when they are decided, with the time of their write.
"""
