"""How Spark's processes reach Kafka: options, clients, and required packages.

Options are strings, and most mistakes of users are made in them. Every option is checked in the driver while the query
is planned, so that no task fails an hour later because of a typo. A refusal names the option and the remedy.

Three laws hold:

1. Options on which correctness depends (`settings.FIXED`) cannot be changed. A read without `isolation.level` =
   `read_committed`, for example, would give records of transactions that were aborted.
2. An option applies to a frame, however the frame is used. Filters are not pushed down to the source, because
   Spark 4.3 applies the filters of one use of a frame to its other uses.
3. A client must never be used in another process than the one that made it. Spark forks its workers, so the keys of
   idle clients begin with the process id.

Importing `konverse.spark` needs no Spark: `require` raises NotInstalled, which names the extra to install.

    settings        the options of `format("konverse")` for reads
    choices         options that choose partitions and conversations of a batch read
    case_rule       column names by `spark.sql.caseSensitive`
    requirements    packages that the Spark side needs beyond konverse itself
    clients         the bridge's clients in drivers and tasks
    cached_clients  clients that outlive a task, because a new one has to fetch the cluster's metadata
"""
