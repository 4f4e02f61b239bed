"""Routing services: a router receives the first message of each dialog and passes the dialog on by its content.

`konverse.routing` decides, without I/O, what to do with the messages of one transaction. This package carries out the
decisions. It reads the router's queue, calls the classifier under a time limit, and commits the outputs of
`konverse.routing.step` in the same transaction as the received messages. `konverse run` and `RoutingService.run` drive
it.

    service    `RoutingService`: a classifier and its clauses, run as the handler of a queue
    registry   `broker.router` and `app.router`: which services of an application are routers
    contracts  checks routers and targets against the catalog
    watchdog   logs a classifier that takes too long
    figures    counts of each router, written to Redis once a second

A router works in one of two modes. A forwarding router stands between both sides and passes messages on in both
directions. A redirecting router tells the initiator where to go and ends the dialog.

Laws:

1. A router has its queue to itself, and none of its targets is on that queue: a message would come back for ever.
2. A forwarding router accepts the union of the contracts of its targets, as far as these are known beforehand. A
   redirecting one accepts only contracts that let the target send the redirection. Both are checked before the router
   starts and when its classifier is replaced.
3. Receiving a message and passing it on is one transaction. A router that is killed leaves the messages unchanged,
   and several processes may share the partitions of its queue.
4. A message that cannot be routed is tried again and then suspended, like any poison message; other dialogs go on.
   A message that the classifier rejects is not tried again: its dialog ends with Error 1 (behaviour 232).
5. Routers that forward to each other in a circle are detected by the hop count that each conversation carries.
6. Figures in Redis are for people. Routing never depends on them.

Source: behaviours 230 to 233.
"""
