"""The data log of a partition, column by column.

A task reads millions of records. Python calls for each of them would cost more than everything else, so headers are
decoded as columns: numpy slices the fixed part, Arrow finds the different suffixes, and only those are parsed.

    topic       a topic, read partition by partition up to known ends
    headers     ours apart from the users'
    frame       the fixed part of all headers at once
    suffix      the message type, and a check that the rest is what an encoder would write
    ingest      what is known of each record: envelope, verdict, number
    acceptance  which records count, as far as counters decide
    batch_rows  rows of writes that wait for a decision
    decisions   records of the journal, judged
    states      what a stream knows at an offset, to go on from there
    columns     the columns of a frame, and how each is made

The verdicts are those of the owner: a row that a frame shows as accepted is one that the fold accepts. A property
test holds random logs against `dialog.fold`.
"""
