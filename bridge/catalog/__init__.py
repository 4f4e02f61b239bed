"""The objects of a database: message types, contracts, queues, services, priorities, routes, routing tables.

The catalog of an instance is a journal of its own, in topic `<instance>.catalog`, for all databases of the instance.
Each process folds it into a copy of the objects and reads it again in the background. Administrators append changes
(`bridge.admin`); sessions, readers, routers and views look objects up.

    catalog        `Catalog`: the copy of one process, its lookups, and `change`
    journal        the topic: reads it, appends to it, watches its settings
    objects        the name of each kind, the error for a missing object, the objects of every new database
    network        where conversations go: the databases of the instance and their routes
    lookups        lookups of classifiers, without a request to Kafka for each message
    judge          whether a message may be received: checks its contract and its body
    homes          ALTER SERVICE … ON QUEUE, as the readers of a queue apply it
    destinations   whether destination topics still belong to their queues

Laws:

1. A change carries the offset that it expects, and is valid only at exactly this offset (protocol.md section 2.1). Two
   administrators at once never lose a change: the later one reads again, checks its own statement against the new
   catalog, and appends again.
2. The catalog is the fold of its journal, and is stored nowhere else.
3. The fold of a queue never reads the catalog. The catalog is checked before a message is written and while an owner
   ingests it; the verdict is then part of the owner's COMMIT.
4. A process reads the journal again before it reports that an object is missing. Changes of known objects are noticed
   within seconds.
5. Lookups of known objects do not block: the lock of the journal is held during requests to Kafka, the lock of the
   objects never is.
6. Records to a topic that was deleted and created again are never received. So the ids of destination topics are
   compared with those in the catalog before a `flush` returns.
"""
