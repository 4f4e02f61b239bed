"""Routing by content: which service a conversation is for, by its first message. Pure decisions.

    classifiers   ready ones: a rule finds a key in a message, and the key names a service
    keys/         rules for Avro, JSON, XML and text, and by hash
    decisions     what a classifier may say: a target, or why it knows none
    router, step  one step of a router on what was received of one conversation group
    loops         routers that lead to each other
    contracts     which contracts a router has to accept
    documents     what a router writes: RedirectTo, and the Error of what cannot be classified
    partitioning  which partition a new dialog goes to
    routed        what a router has done, counted

Three drivers use one step: the router service, Spark with rows, and Spark with a classifier in its tasks. So a
message is routed in the same way whoever routes it.

A router takes part in two conversations and belongs to neither. It forwards messages both ways, passes ends and
Errors on as they were, and never decides twice for one conversation: the first message names the target, the others
follow.
"""
