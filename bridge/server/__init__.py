"""`konverse server`: owns the link queue of an instance, and sends delayed conversations where routing leads.

A conversation with a service that this instance does not know is written to the link queue. A server owns partitions of
that queue, as a reader owns those of its queue, and asks routing for a place: at once, after every change of a route, a
service or a database, and every two seconds for routes whose lifetime is over. Conversations with a place move there
with all of their messages (protocol.md section 9l). The others wait; nothing has to be sent again.

Several servers share the partitions, and any of them may die: the others take over as readers do. Without a server
conversations wait in Kafka, and `konverse why` says so.

    places      routing for each database of the instance, as the owners of the link queue ask it
    requests    dynamic routing: asks the broker configuration service of a database for routes
    server      the reader that owns a share of the link queue

Laws:

1. The place of a conversation is decided once, by a COMMIT of the link queue (N13). Later changes of routes concern
   other conversations.
2. A server decides by the routes of the database that began the conversation, and by Kafka's clock (N27).
3. A server judges no message: only the catalog of the place knows the contract of the service there.
"""
