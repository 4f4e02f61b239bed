"""The objects of a database, as values, and the catalog record that changes one of them.

    objects             MessageType, Contract, Queue, Service, and the catalog record `Change`
    priorities          broker priorities, and the level of a new endpoint
    routes              routes: the addresses of services; `konverse.routing.routes` chooses among them
    addresses           network addresses of routes
    routing_tables      routing tables and their changes
    table_entries       the keys of a routing table as a persistent map
    schema_collections  XML schema collections

The catalog of an instance is a topic. Each of its records is a `Change`: one CREATE, ALTER or DROP of an object. A
change carries the offset that it expects to get and counts only at that offset, so of two concurrent administrators the
later one has to read again and decide again (protocol.md section 2.1). The catalog of a process is a fold of this
topic. The fold of a partition never reads it: owners ask it for verdicts and levels, and record the answers in their
COMMITs.

Three laws hold for all objects. An object is immutable: a change names it and gives its whole new value, or None for a
DROP. A routing table may have a million keys, so its change names only the differences and may take several records,
which count together. A name may be used again after a DROP: the number of an object follows from the offset of its
CREATE and is never reused, and a new queue has a new incarnation, so records for the old queue are ignored.

Names compare byte by byte, as Service Broker compares the names of services. Two names never share a topic, because
`schemas.identifiers` escapes them injectively.

The class methods `of` check the clauses of an object and raise the error with Service Broker's number. `decode_change`
does not check them again.
"""
