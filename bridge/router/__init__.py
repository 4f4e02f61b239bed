"""Routing services: they receive first messages, and pass each conversation on to the service that fits its content.

`routing` decides, from the messages alone. This package gives the decisions a process: it receives, calls the
classifier with a limit of time, and commits what `routing.step` says together with what was received.

    service    `broker.router` and `app.router`: a classifier with its clauses
    registry   which services of an application are routers
    contracts  what the catalog knows of targets: a router accepts the union of their contracts
    watchdog   a classifier that takes too long is named
    figures    what flows, shown in Redis once a second

A router either forwards (it stands between both sides and passes messages on, both ways) or redirects (it tells the
initiator where to go, and ends). A message that cannot be routed is tried again and then suspended, like any poison
message; the others go on. Routers that lead to each other are found by the hops that a conversation carries.
"""
