"""The objects of a database: message types, contracts, queues, services, priorities, routes, routing tables.

The catalog of an instance is a journal of its own, in topic `<instance>.catalog`. A change carries the offset that it
expects to get and counts only if it got it. Two administrators at once never lose a change: the later one reads,
checks its own statement against what it finds, and appends again.

    catalog        what is known here, and `change`
    journal        the topic: read, appended to, watched
    objects        what each kind is called, what creates it, what every database is born with
    lookups        what classifiers ask, without asking Kafka for each message
    judge          whether a message may be received: its contract and its body
    homes          ALTER SERVICE … ON QUEUE, as the readers of a queue see it
    destinations   whether the topics that records go to are still those of their queues
    mirror         the catalog in Redis, for people

Every process keeps its catalog fresh in the background, and reads it again before it reports that something is
missing. What is known is told without waiting: the lock of the journal is held while Kafka is asked, the lock of the
objects never.
"""
