"""The I/O shell around the pure core: effects become calls to Kafka and Redis, outcomes become events.

Threads, sockets and clocks live here; decisions of the protocol do not. A driver takes an effect from a state machine
in `dialog`, carries it out, and hands the outcome back to the machine. Code that decides something about a
conversation belongs in `dialog`, where the simulator can test it.

The packages are layers, the highest first. A package imports only from packages below it.

    cli           the `konverse` command: options in, text and exit codes out
    worker        the processes of `konverse run`, and their supervisor
    broker        `connect` and `Broker`: the calls of an application
    admin         CREATE, ALTER and DROP; commands of operators on conversations
    views         Service Broker's catalog views, and `why`
    router        routing services: a classifier between initiators and targets
    client        the sender of a process, its dialogs, transactions and mailboxes; pools
    reader        one process's share of a queue's partitions, delivered as transactions
    owner         the drivers of owners, followers and standbys
    catalog       the objects of a database, kept in a journal of their own
    verifier      a second fold of the logs, by code that imports nothing from `dialog`
    kafka, redis  clients, their settings and their errors
    validation    checks bodies against schemas, in a separate process
    runtime       settings, threads, clocks, ids, forks, exits, logs

`inbox` is independent of the broker: exactly-once effects in an application's own database.
"""
