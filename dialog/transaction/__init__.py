"""What a handler holds between RECEIVE and COMMIT.

A `Transaction` has the messages of one conversation group. The handler sends, ends, begins dialogs and sets timers on
it. All of that is staged, and nothing of it happens before the owner puts it into a COMMIT. A rollback throws it
away, and the messages are received again.

    Transaction    the calls of a handler, their checks and Service Broker's error numbers
    Message        a received message; it knows its dialog
    Begun          a conversation that the transaction begins, before an endpoint exists
    Taken          the part of a group's queue that the transaction has received
    Savepoints     SAVE TRANSACTION, and the way back to one

A transaction may lock further groups, and move conversations between groups (GET and MOVE CONVERSATION GROUP). Its
parts are then committed together. It may grow up to one commit: `schemas.limits` has the bounds, and
TransactionTooLarge names the one that was reached.

A transaction knows the state that it was made of and no owner. So a handler's program can be tested with a fold
alone.
"""
