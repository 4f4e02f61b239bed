"""The objects of a database, as values, and the record that changes one of them.

    objects             MessageType, Contract, Queue, Service, and the journal record `Change`
    priorities          broker priorities, and which one an endpoint gets
    routes              routes: kept, and not used for choosing yet
    routing_tables      keys and services, changed in parts
    table_entries       the keys of such a table as one cheap value
    schema_collections  XML schema collections

An object is immutable. A change names the object, its whole new value or its end, and the offset that it expects in
the catalog's journal. A name may be used again after a DROP; the number of an object is never used again, so views
can tell the two apart.

Names compare byte by byte, as Service Broker compares services. Two names never share a topic: `schemas.identifiers`
escapes them injectively.
"""
