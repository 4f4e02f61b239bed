"""Questions about the state of a partition, and conclusions for a session.

The laws:

1. No question changes the state of a partition. Where an answer changes something, it changes the session or the
   bookkeeping of the asker.
2. An answer names facts of the logs: states, numbers, counters, times by Kafka's clock. It never guesses the intention
   of a program.
3. A text gives advice only where the advice works: each command that an answer names is tried by a test.

The asker decides which state it asks. An owner answers at once for the partition that it leads. A tool reads the logs
itself (`bridge.owner.follower`), which takes longer and needs no owner.

    standing   where a conversation stands and what it waits for (`konverse why`)
    leaks      sides that an application has forgotten: begun and never ended, or ended on one side only
    searching  in which partition a conversation group lives, found step by step
    in_flight  members of a group that are on their way from one partition to another
    hearing    what a home knows about a session: its peer has ended, its id was closed
    offering   which bounced messages of a home an application may decide about
"""
