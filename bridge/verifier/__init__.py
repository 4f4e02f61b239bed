"""`konverse verify`: judges the logs a second time, with a second implementation of the protocol.

The verifier proves or refutes, from the topics alone, that each message was received once and in order. It shares no
code with `dialog`, only the record layouts in `schemas`: import-linter forbids more. So a mistake in the product's fold
stays hidden only if the second fold contains the same mistake.

`reading.Verification` drives the verification, for the command and for Spark. It finds where all logs end, reads and
folds one partition at a time, and then compares the partitions.

    1. Each partition against itself (`check.judge`): which journal records count, whether each COMMIT may do what it
       does, and whether the newest snapshot and the view in Redis show the state that follows from the logs.
    2. The partitions against each other (`check.compare`): each record in an owner's name is an output of a COMMIT
       that counts, each acknowledged output is in its destination's log, each bounced message is in the mailbox at
       its home or has left it, and each endpoint that moves arrives with the state with which it left.

Laws:

    - A contradiction in the logs is a finding, never an exception. A finding names the rule, the topic, the partition
      and the offsets.
    - Unreadable records are never skipped silently. Deleted records that no snapshot covers are findings; records after
      an open transaction, and data that no owner has ingested, are reported as not judged.
    - The system may keep working meanwhile: the ends of the logs are read in an order that makes the comparison fair.
    - The verifier writes nothing.

Modules:

    reading         reads the logs of a live system, and drives the verification
    records         the records that the second fold reads
    journal         which records of a journal count
    fold/           the second fold
    check           the findings: each partition against itself and against the others
    bounces         mailboxes against the verdicts of other partitions
    snapshots       each snapshot against the second fold
    log_gaps        offsets at which records were deleted from the middle of a log
    starting_state  sets the second fold to the state in a snapshot
    view            the view in Redis against the second fold

The exit code of the command is 1 when something was refuted, 2 when there was nothing to verify, and 7 when an open
transaction or newer fold rules kept records from being judged.
"""
