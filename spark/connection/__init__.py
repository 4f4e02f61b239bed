"""From Spark's processes to Kafka: options, clients, and what must be installed.

    settings        the options of `format("konverse")`, checked before anything is read
    choices         options that choose partitions and conversations of a batch read
    case_rule       names of columns by `spark.sql.caseSensitive`
    requirements    what the Spark side needs beyond konverse itself
    clients         the bridge's clients in drivers and tasks
    cached_clients  clients that outlive a task: a new one has to ask where everything is

Options are strings, and most mistakes are made in them. Each is checked where the query is planned, so that the
driver refuses in words what a task would meet an hour later. A refusal names the option.

Importing `konverse.spark` needs no Spark: users without it can import the package, and `require` names the extra.
"""
