"""Routes between databases and instances: where the messages of a conversation go. Decisions only, no I/O.

A conversation names a service, and perhaps the broker id of a database. Routes say under which address a service is
found: in this instance (LOCAL), at a network address, or at the address with which the name of the service begins
(TRANSPORT). Each database has a table of its own for what it sends; the table of database `msdb` serves messages that
arrive from outside the instance. A decision takes three steps, as in Service Broker (service-broker.md 6):

1. Match: the first of seven steps that finds a route ends the search.
2. Choose: of the matching routes the mirrored ones come first, then LOCAL, network addresses and TRANSPORT.
3. Locate: for LOCAL, the database of this instance that has the service. If there is none, choosing goes on.

The laws:

- A decision is a function of its arguments. The caller gives the time with the table and makes the random choices, so
  that a test, the simulator and a process come to the same decision (N27).
- A missing route is not an error. A message from here that cannot be routed is delayed, and the decision names the
  changes after which it is matched again. A message that arrived and cannot be routed is dropped: its sender keeps it
  and sends it again.
- An expired route does not exist. A table is prepared for a time and knows when the next of its routes expires.
- Routes with one service, one broker id and one address are one route.

    table      the routes of one database, prepared for matching
    instance   the databases of an instance, and locating a service in them
    decision   the three steps for one conversation

BEGIN DIALOG places a dialog by such a decision, in any database of the instance, and `konverse route explain` prints
one. A dialog that cannot be placed now is refused: delaying it, and other instances, are not built yet.
"""
