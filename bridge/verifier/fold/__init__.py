"""The fold of a partition, written a second time.

`dialog.fold` is made for speed: tables, numbers, slots. This one is made to be believed: lists that only grow, one
entry for each event, and no state that could be derived. It takes a hundred times longer and forgets nothing, so that
a check can ask what happened to each message.

    state      everything that was heard, said, ended and moved, in order
    fold       the journal's decisions, one after the other
    ingest     what a data record does
    writers, groups, timers, endings, half_close, moves, batches, mailbox, attempts, loss   the rules, each a second
                                                                                            time

Whoever changes a rule of `dialog.rules` changes it here as well, from the words of docs/protocol.md and not from the
other code. The simulator compares both after every run.
"""
