"""Pools: `broker.pool(...)` keeps conversations open and reuses them, one for each key.

Beginning and ending a conversation for each message costs several times as much as sending the message, and order
exists only inside a conversation. So a pool keeps one open conversation for each key; without keys, one for each
thread, or it rotates through `size` of them. It recycles a conversation that is old or full: the pool sends EndOfStream
last, the target ends its side, then the pool ends its own. When a target ends a conversation early, the messages that
it did not receive come back to the conversation's home. The pool sends them again on the key's next conversation,
before anything new.

`dialog.pool` decides on which conversation a message is sent, when a conversation is recycled, and what happens to
messages that came back. This package carries the decisions out for many threads at once. Its terms:

    place    a key, a thread, or one of `size`: it has at most one open conversation, and all its conversations belong
             to one conversation group
    mark     the bytes that the ids of a group and of all its conversations have in common
    way      the services to which routers have redirected a place, the present one last
    astray   the state of a place whose redirections lead nowhere

    pool      the calls of an application: send, flush, recycle, close
    keeper    carries out decisions: recycles, ends and replaces conversations
    slots     the state of each key, and the pool's lock
    groups    the conversation group of each key, thread, or number below `size`
    routes    begins conversations, to the services to which redirections lead
    resends   resends messages that came back
    takeover  finds and adopts the conversations and messages that another process left in a named pool
    worker    the background thread: asks homes for news, and enforces time limits
    context   calls and objects that a pool gets from its broker
    pools     the pools of a broker, and the reader that receives EndDialog and Error for them
    lease     a lease in Redis for each named pool, so that a second user is refused early

Each class is given the classes that it uses, and knows none of its users:

    Pool -> PoolWorker -> PoolTakeover -> PoolKeeper -> PoolResends -> PoolRoutes -> Slots

A named pool has one user at a time, and the logs enforce that: a second process that opens it closes the session of
the first, whose sends then raise SessionTakenOver. The lease only makes this visible earlier.

A pool never waits for the answer of a home while it holds its lock, so other threads can send meanwhile. The locks are
acquired in this order: takeover, slots, sender.
"""
