"""The clients of Kafka, and what konverse has to know of their behaviour.

`Kafka` makes every client, so that each kind is configured in one place: the producers of sessions, of journals and
of outputs, the consumers of logs, of groups and of tools, and the admin client. The settings are measured, not
guessed; comments name what happens without them.

    clients       producers, consumers and the admin client; words for their errors
    log_reader    ranges of one partition, with the gaps and cuts that a log can have
    columns       records of a client as the columns that the fold takes
    topics        create, check, drop; which settings a topic must have
    topic_watch   what others do to a topic while it is in use
    clock         Kafka's time
    writer_ids    ids of sessions, dated by Kafka's clock
    refusals      what an authorizer refuses: principal, operation, resource
    open_transactions   partitions that a stranger's open transaction holds up

Three facts of librdkafka shape the code. Success is cheapest to learn from an empty queue of the producer, failure
from a report. A producer that failed for good stays so: it is replaced, and everything unacknowledged goes again. A
client that met a hanging broker may believe for ever that a partition does not exist, so a failed reader is replaced,
too.
"""
