"""The shell round the pure core: effects become calls to Kafka and Redis, outcomes become events.

Threads, sockets and clocks live here, and no decision of the protocol does. A driver takes an effect from a machine
in `dialog`, carries it out, and hands the outcome back. When a module here has to decide something about a
conversation, the decision belongs into `dialog`, where the simulator can try it.

Storeys, the highest first. A package imports only from packages below it.

    cli           the `konverse` command: options in, text and exit codes out
    worker        the processes of `konverse run`, and their supervisor
    broker        `connect` and `Broker`: what an application calls
    admin         CREATE, ALTER and DROP; what operators do about conversations
    views         Service Broker's catalog views, and `why`
    router        routing services: a classifier between initiators and targets
    client        the sender of a process, its dialogs, transactions and mailboxes; pools
    reader        one process's share of a queue, handed out as transactions
    owner         the drivers of owners, followers and standbys
    catalog       the objects of a database, kept in a journal of their own
    verifier      the logs judged a second time, by code that shares nothing with `dialog`
    kafka, redis  the clients, their settings and their errors
    validation    bodies against schemas, in a process of its own
    runtime       settings, threads, clocks, ids, forks, exits, logs

`inbox` stands alone: exactly-once effects in an application's own database.
"""
