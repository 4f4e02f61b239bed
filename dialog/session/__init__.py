"""Sessions: the writers with which clients begin dialogs, send on them and end them. Pure state machines without I/O.

A session numbers its records for each destination partition: 0, 1, 2 … The destination accepts each number once and in
order. After any failure the session sends everything again from the first unacknowledged record, with the same numbers,
so nothing is received twice.

The laws (protocol.md section 5):

1. A record counts as acknowledged only when the idempotent producer has drained after it without a failure. Kafka's
   acknowledgement of one record says nothing about the records before it.
2. FIRST leaves after BEGIN is acknowledged, so a home knows a conversation before its target does. END leaves after all
   messages of the dialog are acknowledged, so it cannot overtake them.
3. A dialog uses one path to its target at a time: direct sends, transactions through the transmission queue, or
   REDIRECTs that its home carries out. All records on one path have arrived before the next path is used. Once a call
   is reported as done, its records arrive before those of any later call on that side, whichever paths they take (I22).
4. A writer id contains a time from Kafka's clock, and destinations forget old ids. A session takes a new id before that
   can happen, and also when another process has closed its id, or when records under it were deleted before they were
   ingested. The new id first closes the old one at each destination. The destination answers how many of the old id's
   records it received, and only the others are sent again.
5. An outcome that cannot be known is reported as unknown, never guessed. The report carries a token with which the
   outcome can be queried later.

Drivers: `bridge.client.sender` with threads and a Kafka producer, and `tests.kit.simulator`.

    session       begin, send, end, timers; which records may leave once the producer has drained
    lanes         the records for one destination, from the first unacknowledged one on
    dialogs       one dialog: its state, its headers, and the messages held until its BEGIN or REDIRECT takes effect
    transactions  several begins, sends and ends that happen together or not at all
    rotation      when a session needs a new id, and how its records move to it
    adoption      a session continues conversations whose sender is gone
    outcome       which messages of a sender that is gone were received
"""
