"""Read-only queries on the state of a partition, and conclusions for a session.

The laws:

1. No query changes the state of a partition. Some queries change the session, or bookkeeping of their caller.
2. A result states facts from the logs: states, numbers, counters, times by Kafka's clock. It never guesses the
   intention of a program.
3. A text gives advice only where the advice works: a test runs each command that a text names.

Each query can be read alone; only `searching` uses another one, `in_flight`.

The caller decides which state to query. An owner has the state of its partition in memory. A tool reads the logs itself
(`bridge.owner.follower`), which takes longer and needs no owner.

    standing   where a conversation stands and what it waits for (`konverse why`)
    leaks      sides that an application has forgotten: begun and never ended, or ended on one side only
    searching  in which partition a conversation group lives, found step by step
    in_flight  members of a group that are on their way from one partition to another
    hearing    reports of a home to a session: peers of its dialogs have ended, its id was closed
    offering   which bounced messages of a home an application may decide about
"""
