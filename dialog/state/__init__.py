"""What a queue partition is: data without rules.

`Partition` holds everything that a fold of the journal and the data log comes to. It knows its endpoints, its
writers, its outbox and its clocks. It changes only through `dialog.rules`, and it can be frozen into a snapshot at
any point.

    Partition     the root; `Partition.table` gives an endpoint its index, by which commits name it
    Endpoint      one side of one conversation: its state, its unread messages, its timer and lifetime
    Group         the endpoints that a handler receives together, one handler at a time
    Writer        who may be heard: the next counter that is expected, or where the writer was closed
    Stream        what commits have sent, stream by stream, until the destination acknowledges it
    Ranked        groups with something to receive, by priority level
    Clocks        the timers and lifetimes that are next
    Mailbox       messages that came back to the home of their session
    Recent        the records that were ingested last, to tell a duplicate from a forgery
    NamedSides    conversations whose id the caller has chosen

A million conversations may live in a process, so the classes have slots, share what repeats and keep no empty
container. `transitions` has the states of an endpoint as a table (service-broker.md section 2): each event has one
next state, or an error. Two digests of equal states are equal: invariant I3 compares them.

Nothing here looks at a clock. Times are milliseconds of Kafka's clock and arrive as arguments.
"""
