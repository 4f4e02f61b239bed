"""The vocabulary of konverse: names, limits, errors, records and their bytes.

It imports no other package of konverse, reads no clock and talks to no server.

    errors          every exception, in one tree, with Service Broker's numbers
    stack_errors    exceptions of the local stack
    limits          every bound of the product, with its reason
    identifiers     names, addresses and ids; names of topics, consumer groups and Redis keys
    levels          priority levels
    groups          the conversation group that a side has before it is moved
    timeouts        checks of timeouts that callers give in seconds
    counting        numbers with their nouns, in texts for people
    system_messages EndDialog, DialogTimer and the Error document
    origins         the description of an Error that a router passes on
    validation      checks of message bodies that need no schema
    xml_encoding    the encoding and the declaration of an XML document
    wire/           records of data logs, journals and snapshots, and their bytes
    catalog/        the objects of a database

Every later version must read what this version writes to Kafka. So a change to a record is a change of the format. The
decoders know one layout of each record: a new field needs a new kind or version of the record, and a decoder that knows
both. A new operation of a COMMIT needs a higher FOLD_VERSION. Numbers are never reused, and `tests/golden` holds
journals of earlier versions.

The bytes of a record may come from any program that may write to a topic. So each decoder either returns a value within
its bounds or raises MalformedRecord, whatever the bytes are; property tests feed the decoders random bytes. Owners
write to the addresses that records name, so an address that names an internal topic is malformed too.
"""
