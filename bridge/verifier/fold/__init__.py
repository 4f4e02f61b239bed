"""The second fold: the state of a partition, computed from its two logs by code that the product does not share.

`dialog.fold` is made for speed: tables, numbers, slots. This fold is made to be trusted: lists that only grow, one
entry for each event, and nothing stored that can be derived. It takes a hundred times longer and forgets nothing, so
that a check can ask what happened to each message, each output and each endpoint.

`check.judge` drives it with the judged journal and the data log; the simulator drives the same class over its own logs
and compares the result with the product after every run. For each COMMIT that counts, `fold.SecondFold` takes the data
records up to `ingest_to` (`ingest.ingest`), applies the operations in the order of protocol.md section 3, and fires the
timers that were due.

Laws:

    - Nothing is imported from `dialog`. A change of a rule in `dialog.rules` is made here as well, from the text of
      docs/protocol.md and not from the other code.
    - A log that contradicts itself is noted by `SecondState.problem` as "rule: text", and the fold goes on. It never
      raises an exception.
    - Time is the time in the records.

Modules:

    fold        the journal's decisions, one after the other
    ingest      what each kind of data record does
    state       endpoints, outputs and everything else that the rules remember
    answers     answers to records that are not accepted
    writers     admission of writers, CLOSE_WRITER and heirs, PRUNE, notices
    endings     END WITH CLEANUP, messages given back, conversations that the broker fails
    ended       how sides end; conversation ids that callers choose
    half_close  FIN; transactions of clients
    mailbox     messages that came back
    groups      conversation groups and priority levels
    timers      timers and lifetimes
    attempts    handlers that failed and owners that died
    moves       endpoints that move to another partition
    moved_state how they left and arrived, and the stubs that they left behind
    batches     rows that Spark writes
    loss, holes deleted data, and the counters that writers lost with it
    forgeries   records under another producer's writer and counter
"""
