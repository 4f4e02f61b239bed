"""Data-dependent routing in bulk: Spark classifies many first messages at once, by SQL, frames or functions over Arrow.

`konverse.spark.route` receives in the driver and `route_arrow` in tasks. Both work through `receive.mapping.Batches`:
`Classification.ask` classifies the first messages of a batch together, then `Classification.apply` takes the router's
step on each conversation group.

Four laws hold:

1. Spark only names the service. Everything else is the pure step of `konverse.routing.router`, the same as in a router
   service.
2. Only the first message of a conversation that is not mapped yet is classified. A conversation keeps its service,
   whatever the classifier or its table says later.
3. All that a step does is in one commit of the queue's owner, together with the received messages. A job that dies has
   routed a group completely or not at all.
4. One version of a routing table classifies a batch as a whole.

A row without a service is unclassifiable: its conversation ends with an Error that carries the reason. A conversation
that cannot be routed is rolled back, tried again and then suspended; it must never hold up the others. Rows of a wrong
shape end the job with InvalidSettings, and nothing of that batch is done.

    routing        which messages are classified, and how the returned rows become decisions
    catalog_table  a routing table of the catalog, as router services and `konverse table` use it
"""
