"""Receiving in bulk: a function over Arrow batches or frames answers a queue.

    mapping       `map_arrow` in tasks, `process` in the driver: received and answered in one commit for each group
    answers       columns that a function gets, and rows that it may answer with
    progress      the line that a person sees meanwhile
    report_board  what tasks have counted so far, told to the driver by way of Kafka

Here Spark is a receiver like any other: its tasks own partitions, and their commits have the answers. That is the
difference to `spark.read`, which looks and takes nothing.

A function that raises fails its batch. Halves are tried until it is known which group it was; that one is rolled back
and, after five attempts, suspended. The others are answered.
"""
