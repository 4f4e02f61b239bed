"""Service Broker's views of a database, with its column names: `broker.views`.

`rows` has a class for each view, `door` a method. What a row is made of: `objects` (the catalog), `endpoints` and
`contents` (the state of partitions), `outbox` and `unsent` (what has not arrived). `looking` gets the state: from
Redis where it has what is asked for, else folded from the logs without claiming anything.
"""
