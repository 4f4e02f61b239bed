"""The data log and the journal of a partition, judged for readers of Spark.

A task reads millions of records, and a Python call for each of them would cost more than everything else. So records
are judged column by column: numpy slices the fixed part of all headers at once, Arrow finds the different suffixes, and
only those are parsed.

A reader of `spark.read` drives this package: `Topic.chunks` gives lists of records, `Ingest.take` judges them, and
`columns.batch` makes an Arrow batch of the rows. For the journal, `Decisions.judge` and `rows` take the place of the
latter two.

Four laws hold:

1. The verdicts are those of the owner, as far as writers' counters decide: a row that a frame shows as accepted is one
   that the fold of `dialog.fold` accepts. A property test compares the two on random logs. Verdicts that depend on the
   states of endpoints, such as a bounce, are known to the owner alone.
2. A verdict depends on the records of the log alone, not on how they are cut into chunks, tasks and micro-batches. The
   log is judged from its start, in order, each record once. One thing depends on the read: a record that is not
   accepted may be `contested` in a read that has seen its counterpart, and `duplicate` in another.
3. A row that Spark wrote is void until a DECISION in the log accepts it. It then appears right after that DECISION.
4. No bytes in a header may raise an error. A header that cannot be decoded gets the verdict `malformed`.

A state in `states` stands for the records before its offset. It saves time only: a task that finds none reads the log
from its start.

    topic       a client that reads a topic partition by partition, up to known ends
    headers     konverse's header apart from the users' headers
    frame       decodes the fixed part of all headers at once
    suffix      the message type, and a check that the rest has the form that an encoder writes
    ingest      envelope, verdict and sequence number of each record
    acceptance  which records are accepted, by the counters of writers
    contested   records under a used counter with other content
    batch_rows  rows of writes that wait for a decision
    decisions   records of the journal, judged
    states      stored states of streams
    columns     the columns of a frame, and how each is made
"""
