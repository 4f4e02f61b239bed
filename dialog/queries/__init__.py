"""Questions to the state of a partition: nothing here changes it.

    standing    where a conversation stands and what it waits for (`konverse why`)
    leaks       sides that somebody has forgotten: begun and never ended, or ended on one side only
    in_flight   what is on its way while a group moves from one partition to another
    searching   in which partition a group is, asked step by step
    hearing     what a home knows of its session: the peer has ended, the id was closed

An answer names facts of the logs: states, numbers, counters, times by Kafka's clock. It never guesses what a program
has in mind. Advice is part of the text only where it works: each command that an answer names is tried by a test.

The asker decides which state it asks. An owner answers for the partition that it leads, at once. A tool reads the
logs itself (`bridge.owner.follower`), which takes longer and needs no owner.
"""
