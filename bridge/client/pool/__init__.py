"""Pools: `broker.pool(...)` keeps conversations open and sends on them, one for each key.

`dialog.pool` decides which conversation a message takes, when one is recycled and what happens to what comes back.
This package carries that out for many threads at once.

    pool         what an application calls: send, flush, close
    keeper       the half that works in the background: recycling, verdicts, redirections
    slots        what a pool keeps for each key
    pools        the pools of a broker, and the reader of their homes
    lease        a named pool has one user at a time: a lease in Redis tells a second one
    inheritance  what a process that died has left of a named pool

No lock of a pool is held while Kafka is asked. A key that waits for a new conversation holds up its own messages and
no other key's.
"""
