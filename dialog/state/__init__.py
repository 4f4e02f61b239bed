"""The state of one queue partition: data without rules.

`Partition` holds everything that a fold of the journal and the data log produces: endpoints, writers, outbox, clocks.
Only `dialog.rules` and `dialog.fold` change this state. It can be frozen into a snapshot at any point.

    Partition     the root; `Partition.table` gives each endpoint its index, the short name that commits use
    Endpoint      one side of one conversation: its state, its unread messages, its timer and lifetime
    Group         endpoints that are locked and received together, by one handler at a time
    Writer        the entry of a sender: the next counter that the partition accepts, or where it was closed
    Stream        the outputs for one destination partition, kept until that acknowledges them
    Ranked        endpoints with something to receive, by priority level
    Clocks        the timers and lifetimes that are due next
    Mailbox       messages that bounced back to the home partition of their session
    Recent        the records that were ingested last, to tell a duplicate from a forgery
    NamedSides    conversations whose id the caller chose

A process may hold a million conversations, so the classes have slots, share values that repeat and keep no empty
containers. `transitions` has the states of an endpoint as a table (service-broker.md 3.2): a pair of state and
event has one next state, or is a bug in konverse.

Equal states have equal digests: invariant I3 compares them. Some attributes are caches, hints or callbacks, marked "not
state". A digest leaves them out, and a fold must not depend on them: an owner's COMMIT records every decision that it
made with their help.

Nothing here reads a clock. Times are milliseconds of Kafka's log-append time and arrive as arguments.
"""
