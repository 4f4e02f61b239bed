"""Conversations that are used again: `usp_Send` of Service Broker's best-known pattern, as a machine.

To begin a conversation costs two records and a round trip. Programs that send many small messages keep conversations
open and send on them, one for each key, so that messages of a key stay in order. Sooner or later a conversation must
be recycled: a message of type EndOfStream goes last, the target ends its side, and the home follows.

    Pooling      which key has which conversation, which are free, which are closing
    recycling    when a conversation is full, old or idle, and the steps to its end
    places       figures of a pool, and where the conversations of a named pool are found

Three promises hold through recycling, death and take-over (behaviours 224 to 229). Nothing arrives behind
EndOfStream. Messages of a key arrive in the order in which they were sent, also from one conversation to the next.
Nothing stays open: a pool that dies leaves timers behind, and the reader of its home closes what they ring for.

Messages that a target did not receive before it ended come back. The pool sends them again on another conversation of
the key, ahead of what comes later.
"""
