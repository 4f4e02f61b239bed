"""The sending side of an application: begin dialogs, send, end, and learn the outcome.

All threads of a connection share one session: a writer id, and a counter for each destination partition. The state
machine `dialog.session` decides which records are sent, and when. This package drives it with one Kafka producer.

    client            `Client`: the client half of a broker, which owns its sender
    connection        the Kafka clients, catalog and settings that all parts of a broker share
    dialog            a dialog as its initiator holds it
    begin             BEGIN DIALOG: resolves the clauses to addresses, using the catalog
    sender            the calls of application threads
    session_producer  the producer: which thread polls it, what happens when a record fails
    session_ids       the session's ids: renewed in time, former ids closed at each destination
    transaction       several begins, sends and ends that happen together or not at all
    transmission      the queue that carries these transactions
    mailboxes         bounced messages at a dialog's home: confirms or redirects them
    homes             homes that this process does not own, read from their journals
    adoption          takes over conversations of a process that died
    outcomes          finds out whether the messages of a lost sender were received
    unsent, outgoing  undelivered messages, for views
    fire_and_forget   examines ended dialogs for a warning
    pool/             conversations that are reused

`send` takes a few microseconds: it appends to the Kafka client's buffer and returns. `flush` returns when every record
sent before it counts and Kafka has confirmed that the topics are still those of the queues. If this is not established
in time, it raises OutcomeUnknown with a token; `broker.outcome(token)` answers later, in any process.

Success is never reported too early. A record counts, that is, it is known to be delivered, when the producer has run
empty after it without a failure (protocol.md section 5) and its topic is still that of the intended queue.
"""
