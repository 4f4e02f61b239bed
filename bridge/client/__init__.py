"""What an application does beside receiving: begin, send, end, and learn what became of it.

    sender        one session and one producer for all threads of the process
    serving       the producer, served by whichever thread has time
    begin         BEGIN DIALOG: clauses into addresses, by the catalog
    dialog        a dialog as its initiator holds it
    transaction   several begins, sends and ends that happen together
    transmission  the queue that carries them
    mailboxes     messages that came back, and what to do about them
    session_ids   the session's ids: renewed in time, asked about afterwards
    adoption      conversations of a process that died
    outcomes      what became of messages whose sender is gone
    unsent, outgoing   what has not been delivered, for views
    pool/         conversations that are used again

`send` costs a few microseconds: it appends to the client's buffer and returns. `flush` returns when everything sent
before counts, and asks Kafka once more whether the topics are still those of the queues. What it cannot learn it
reports as OutcomeUnknown, with a token; `broker.outcome(token)` answers later, in any process.

Nobody is told a success that is none. A record counts when it is acknowledged in the topic of the queue that was
meant.
"""
