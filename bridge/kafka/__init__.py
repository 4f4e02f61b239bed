"""The clients of Kafka, and what konverse has to know of their behaviour.

`Kafka` makes every client, so that each kind is configured in one place: the producers of sessions, of journals and
of outputs, the consumers of logs, of groups and of tools, and the admin client. Settings come from measurements;
comments tell what happens without them. Other packages of `bridge` use these clients from their own threads. Nothing
here knows conversations: a record is an offset, a header, a body and a timestamp.

The laws:

- konverse never goes on from an offset that was committed to Kafka. It positions its consumers itself, and no client
  resets a position: an offset that is gone raises `LogTruncated`.
- Consumers read up to the last stable offset (`read_committed`).
- A topic is identified by Kafka's id for it, not by its name, as a name can be given twice. A topic whose settings
  would lose messages is refused, with the command that mends it.
- Ages and time limits of conversations use Kafka's clock, never this machine's.
- A missing right becomes `AccessDenied`, with principal, operation and resource. An unanswered call becomes
  `KafkaUnavailable`, never an empty result.

Three facts of librdkafka shape the code:

- Success is learnt most cheaply from a producer that has run empty, failure from a delivery report.
- A producer that has failed for good never recovers. It is replaced, and all unacknowledged records are produced again.
- A client that met a hanging broker may believe for ever that a partition does not exist. So a log reader replaces its
  client after any failure.

    clients            producers, consumers and the admin client; texts and types for their errors
    log_reader         reads ranges of one partition
    appending          appends a few records and waits for the answers
    columns            records of a client as the columns that the fold takes
    headers            finds konverse's header of a record
    topics             creates, checks and deletes topics
    misfits            topic settings that do not fit, and the command that mends each
    topic_watch        notices what others do to a topic while it is in use
    open_transactions  partitions that a foreign producer's open transaction holds up
    clock              Kafka's time
    writer_ids         ids of sessions, dated by Kafka's clock
    refusals           what an authorizer refuses: principal, operation, resource
"""
