"""Service Broker's views, from the catalog, from Redis and from the logs.

    views          the door: `broker.views.<name>()` and `konverse view NAME`
    listing        which views there are, and their columns (docs/views.md)
    endpoints      sys.conversation_endpoints
    outbox         sys.transmission_queue: what has not arrived yet, and why
    contents       what waits in a queue
    objects        the objects of the catalog
    partitions     owners, readers and how far they are; NO READER
    reading_state  the same for one queue, from its logs
    why            where one conversation stands

A view never shows a state that is not so. Where Redis is behind the journal, the row says since when. Where nobody
reads a queue, it says NO READER, since when, and how much waits. Where only the logs can answer, they are read, which
takes longer.
"""
