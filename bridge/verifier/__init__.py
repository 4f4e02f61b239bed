"""`konverse verify`: the logs judged a second time.

The verifier proves or refutes, from the logs alone, that each message was received once and in order. It shares no
code with `dialog`: import-linter forbids it. A mistake in the fold would have to be made twice, in different words,
to pass.

    reading         takes the logs from a running system in an order that makes the comparison fair
    journal         which records of a journal count
    fold/           the second fold
    check           each partition against itself and against the others
    snapshots       each snapshot against the state at its place
    starting_state  where a verification begins when the beginning was deleted
    bounces         what came back was bounced, and what was bounced came back
    view            Redis against the second fold

A finding names the rule, the topic, the partition and the offsets. The exit code is 1 when something was refuted, and
2 when nothing was verified. A hole that nothing explains is never passed over.
"""
