"""Routing by content: the first message of a conversation decides for which service it is. Decisions only, no I/O.

A router takes part in two conversations and belongs to neither: the inbound one, from an initiator, and the outbound
one, which it begins to the service that was decided on. Both are in one conversation group, which is the whole mapping
between them. Alternatively the router redirects: it tells the initiator where to go and ends the inbound conversation.
Source: behaviours 230 to 233.

The laws:

1. A conversation is classified once, by its first message. All later messages follow the first.
2. Messages are forwarded unchanged and in order, both ways. An end is passed on as an end, an Error as an Error that
   names its origin.
3. One step is one transaction: its receives and its sends count together, or not at all.
4. A message that cannot be classified ends its conversation with Error 1. A fault of the router or its settings raises
   instead, so that the transaction is rolled back and no conversation is lost to it.
5. No conversation circulates forever: ids count the routers passed, and redirections never return to a service.
6. Bodies are foreign input. A rule takes time and memory in proportion to a body, whatever it contains.

Drivers: the router service (`bridge.router`), Spark with rows, and Spark with a classifier in its tasks
(`spark.routing`). All take the same `Step`, so each routes a message in the same way.

    classifiers   ready classifiers: a rule finds a key in a message, and the key names a service
    keys/         rules for Avro, JSON, XML and text, and by hash
    decisions     the decisions of a classifier: a target, or why it knows none
    router, step  one step of a router on the messages received from one conversation group
    loops         circles of routers and redirections, and how they are stopped
    contracts     which contracts a router must accept
    documents     documents of a router: RedirectTo, and the code of the Error for unclassifiable conversations
    partitioning  which partition a new dialog goes to
    routes/       routes between databases: which database, or network address, has a service
    routed        counts of a router's work
"""
