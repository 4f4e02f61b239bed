"""Service Broker's catalog views (`sys.conversation_endpoints` and so on), made from the catalog, Redis and the logs.

People and tools call them as `broker.views.<name>()` or `konverse view NAME` (docs/views.md). No part of konverse bases
a decision on a view.

    views          `Views`: one method for each view
    rows           the rows: Service Broker's columns, under its names
    view_result    `View`, the result: rows and the source of each partition's rows
    partitions     folds a partition, or finds that its rows in Redis are fresh enough
    endpoints      rows of sys.conversation_endpoints and sys.conversation_groups
    contents       the messages in a queue
    outbox         rows of sys.transmission_queue: outputs not known to have arrived, and why
    objects        the views of the catalog
    membership     whether a silent owner is still a member of its queue's consumer group
    reading_state  whether a partition has a reader, and how much data waits to be ingested
    lag            the backlog of each partition
    why            `konverse why`: the state of one conversation, and what holds it up

Laws:

1. A view reads and changes nothing: it claims no partition, consumes no message, takes no lock.
2. A view shows only committed states: the fold of journal and data. Data that no owner has ingested yet is judged as
   the next owner would judge it.
3. Rows come from Redis only when it has all columns asked for, the whole partition, and everything older than five
   seconds. Otherwise the partition is folded from its logs, which takes longer. `View.sources` names the source.
4. A column that is not known is None, as NULL in Service Broker, never a guess.
5. A partition without a reader is reported as such, with the time of its last sign of life and the number of waiting
   offsets.
"""
