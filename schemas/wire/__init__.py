"""Records and their bytes. All of them are plain Avro; the `.avsc` files beside this folder are the schemas.

    envelope    the header `konverse` of a data record: kind, flags, role, tag, writer, counter, conversation,
                sequence
    suffix      what stands behind these fields: message type, home, target, details
    records     an envelope as a value: Kind, Envelope, Begin, End, Bounce, Notice …
    journal     CLAIM and COMMIT
    operations  the rare operations of a COMMIT, one record each
    snapshot    the chunks of a state
    moved       an endpoint on its way to another partition
    client_transaction, batches, instruction, token   bodies of records with a purpose of their own
    bodies      message bodies as callers give them
    columns, templates, varint   what makes the common case fast

The value of a data record is the user's body and nothing else, so any tool of Kafka reads it. The envelope is laid by
hand: a running counter becomes bytes with one look-up, and a header that ends like the last one is compared, not
parsed. Each fast way is proved equal to fastavro by a property test.

A record of a kind that this version does not know is authentic and without effect. It uses up its counter, so a later
version may add kinds.
"""
