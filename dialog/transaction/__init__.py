"""A handler's work between RECEIVE and COMMIT.

A `Transaction` holds the ready messages of one conversation group. The group is locked for it. The handler receives,
sends, ends and begins dialogs, and sets timers. All of this is staged in memory.

The laws:

- A transaction changes no state. Its work takes effect in one COMMIT of the owner, all of it or none.
- A rollback drops the staged work, and the messages wait as before (behaviour 74). A rollback to a savepoint drops the
  work since then, and the group stays locked (behaviour 213).
- Each call is checked when it is made, and raises Service Broker's error.
- The work of a transaction fits into one COMMIT. `schemas.limits` has the bounds; TransactionTooLarge names the bound
  that was reached.

`dialog.owner.staging` makes the transactions and merges the finished ones into COMMITs. A transaction reports the end
of its `with` block to its `TransactionHost`, which is the reader or a test. `TransactionContext.begin` makes the BEGIN
of a conversation. It is not a method of the host, because the driver that supplies it does not know the host. A
transaction knows the endpoints that it was made from, and no owner. So a handler can be tested with a fold alone.

    transaction   the calls of a handler, with their checks; data that the transactions of a partition share
    groups        moves of conversations, and further groups
    taken         the messages of the group, and how many of them the handler has received
    received      a received message and its context; the types of a handler's rules
    begun         a conversation that the transaction begins, before an endpoint exists
    savepoints    SAVE TRANSACTION, and ROLLBACK to a savepoint

A transaction may lock further groups of its partition, and move conversations between groups (GET CONVERSATION GROUP,
MOVE CONVERSATION). All of its groups are committed together.
"""
