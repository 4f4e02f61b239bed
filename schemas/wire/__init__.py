"""Records of data logs, journals and snapshots, and their bytes: plain Avro, by the `.avsc` files in `schemas`.

    records     an envelope as values: Kind, Envelope, Begin, End, Bounce, Notice …
    envelope    the header `konverse` of a data record, encoded and decoded
    suffix      the end of an envelope (message type, home, Begin block, detail) in its Avro form
    journal     CLAIM, COMMIT and PART
    operations  the rare operations of a COMMIT
    snapshot    records of a snapshot topic, and sections of a state
    moved       the state of an endpoint that moves to another partition
    client_transaction, batches   bodies of TRANSACTION, BATCH and DECISION
    instruction   an operator's order to the owners of a queue
    token       the token of an unknown outcome
    bodies      checks of message bodies that callers give
    columns, templates, varint   fast encodings of the common case

The value of a data record is the user's body and nothing else, so any Kafka tool can read it. The envelope is encoded
by hand, because millions of messages pass: a running counter becomes bytes by one look-up, and a header that ends like
the one before it is compared, not parsed. Property tests prove that each fast path writes and reads the same bytes as
fastavro.

Decoders are total: for any bytes they return a value or raise MalformedRecord. The end of an envelope is accepted only
in its canonical encoding, so equal ends have equal bytes.

A record of a kind that this version does not know is accepted without effect. It uses up its counter, so a later
version may add kinds.
"""
