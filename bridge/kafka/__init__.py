"""Kafka clients, and the facts about their behaviour on which konverse depends.

`Kafka` creates every client, so that each kind is configured in one place: the producers of sessions, of journals and
of outputs, the consumers of logs, of groups and of tools, and the admin client. Settings were chosen by measurement;
comments say what happens without them. Other packages of `bridge` use these clients from their own threads. Nothing
here knows about conversations: a record is an offset, a header, a body and a timestamp.

The laws:

- konverse never resumes from an offset that was committed to Kafka. It positions its consumers itself, and no client
  resets a position: a deleted offset raises `LogTruncated`.
- Consumers read up to the last stable offset (`read_committed`).
- A topic is identified by its Kafka id, not by its name, because a name can be reused. A topic whose settings would
  lose messages is refused, and the error names the command that corrects it.
- Ages and time limits of conversations use Kafka's clock, never this machine's.
- A missing right becomes `AccessDenied`, with principal, operation and resource. An unanswered call becomes
  `KafkaUnavailable`, never an empty result.

Three facts of librdkafka shape the code:

- The cheapest proof of success is a producer that has run empty. Only failures need a delivery report.
- A producer never recovers from a fatal error. It is replaced, and all unacknowledged records are produced again.
- After a broker hung, a client may report for ever that a partition does not exist. So a log reader replaces its client
  after any failure.

    clients            producers, consumers and the admin client; exceptions and texts for their errors
    log_reader         reads ranges of one partition
    appends            appends a few records and waits for the answers
    columns            converts records of a client to the columns that the fold reads
    headers            finds konverse's headers in a record
    topics             creates, checks and deletes topics
    topic_faults       unsuitable topic settings, and the command that corrects each
    topic_watch        notices changes made to a topic from outside while it is in use
    offsets            where logs begin and end
    open_transactions  partitions that a foreign producer's open transaction holds up
    clock              Kafka's time, and ids of sessions, which are dated by it
    refusals           authorization errors: principal, operation, resource
"""
