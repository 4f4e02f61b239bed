"""Pools: conversations that are reused, one for each key. Pure state machines without I/O.

This is `usp_Send`, Service Broker's pattern of reused and recycled conversations (behaviours 224 to 229). Beginning a
conversation costs two records and a round trip. A program that sends many small messages therefore keeps conversations
open, one for each key, and sends on them; so the messages of a key stay in order. Eventually a conversation must be
recycled: its last message has type EndOfStream, the target ends its side, and the home ends the other.

The laws, which hold through recycling, the death of a process, and take-over by another one:

1. A place (a key, a session, or one of the `size` conversations of a pool) has at most one open conversation. All
   conversations that it ever has are in one conversation group, so they have one home.
2. Nothing is received after EndOfStream: FIN follows it directly in the same log.
3. Messages of a key are received in the order in which they were sent, also when one conversation replaces another.
   Messages that a target did not receive before it ended come back, and are sent again before anything newer.
4. Nothing stays open. Each conversation has a timer at its home. When the pool dies, the timer fires and the reader of
   the home closes the conversation.

`PoolState` waits for nothing and knows no clock: events are calls, `now_ms` is an argument, and effects are returned.
A verdict on a message says that it was received or has come back; after POOL_VERDICT_MS_MAX a pool stops waiting for
one. Drivers: `bridge.client.pool` and `tests.kit.pool_client`; the reader of a home calls `recycling.answer`.

    pool       `PoolState`: which conversation each key has, and what follows from the reports of its home
    places     places, pooled conversations, effects and statistics
    recycling  the steps that close a conversation, at its sender and at its home
"""
