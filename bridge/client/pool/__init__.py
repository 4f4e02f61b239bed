"""Pools: `broker.pool(...)` keeps conversations open and reuses them, one for each key.

To begin and end a conversation for each message costs several times as much as the message, and order exists only
inside a conversation. So a pool keeps one open conversation for each key, one for each thread, or `size` of them that
take turns. It recycles a conversation that is old or full: EndOfStream goes last, the target ends its side, then the
pool ends its own. When a target ends a conversation early, the messages that it did not receive come back to the
conversation's home. The pool sends them again on the key's next conversation, before anything new.

`dialog.pool` decides which conversation a message takes, when one is recycled, and what happens to messages that came
back. This package carries the decisions out for many threads at once. Its terms:

    place    a key, a thread, or one of `size`: it has at most one open conversation, and all its conversations belong
             to one conversation group
    mark     the bytes that the ids of a group and of all its conversations have in common
    way      the services to which routers have redirected a place, the present one last
    astray   the state of a place whose redirections lead nowhere

    pool      the calls of an application: send, flush, recycle, close
    keeper    carries out decisions: recycles, ends and replaces conversations
    slots     the state of each key, and the pool's lock
    groups    the conversation group of each key, thread or turn
    routes    begins conversations, where redirections lead
    resends   sends messages again that came back
    takeover  finds and adopts what another process left of a named pool
    worker    the background thread: asks homes for news, and lets time pass
    context   what the broker gives to a pool
    pools     the pools of a broker, and the reader that receives EndDialog and Error for them
    lease     a lease in Redis for each named pool, so that a second user is refused at once

Each class is given those that it uses, and none of them knows its users:

    Pool -> PoolWorker -> PoolTakeover -> PoolKeeper -> PoolResends -> PoolRoutes -> Slots

A named pool has one user at a time, and the logs enforce that: a second process that opens it closes the session of
the first, whose sends then raise SessionTakenOver. The lease only makes this visible earlier.

A pool never waits for the answer of a home while it holds its lock, so other threads can send meanwhile. Locks are
taken in this order: that of a takeover, that of the slots, that of the sender.
"""
