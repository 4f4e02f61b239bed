"""A deterministic simulator: the product's own classes over a simulated Kafka, in one thread and on a virtual clock.

A seed is one run. `Choices` makes every random decision of a run from its seed and records the decisions, so that a
failure repeats exactly and can be shrunk. First the swarm is drawn: topology, load, limits of the product, and rates of
faults, many of them zero. Then processes act in random order under faults. At the end the world becomes calm: no more
faults, one owner for each partition, and everything must drain.

The laws:

- Only drivers are simulated. `Owner`, `Session`, the folds, the staging of transactions and the `Driver` of batch
  queries are the product's classes, unchanged. `tuning` changes numbers, and replaces functions only by equal ones.
- One generator decides everything. No other randomness, wall clock, thread or set order may influence a run.
- 0 is the harmless choice everywhere. Shrinking sets choices to 0.
- The logs decide. A check compares the actions and beliefs of processes with them. The reference is the verifier's
  second fold.
- Each rare path has a name in `sometimes`. A long run that never walks one of them fails.

`python -m tests.simulation` and the tests of `tests/simulation` drive it. The mutants there prove that the checks work:
each switches off one rule of the product, and the simulator must fail on it.

    run          one seed, from the draw to the checks
    world        the processes and partitions of a run, its faults and its calm end
    swarm        the draw of a run: topology, load, limits, rates of faults
    choices      the random decisions; shrink and story explain a failure
    kafka        logs and requests; producing has the producers, reads the consumers
    places       partitions and their logs, folded from outside
    owning       the process of an owner; following that of a follower
    sending      the process of a session; mailboxes, transacting, renewing and adopting are parts of it
    batching     the drivers of batch queries; executing has their tasks
    handlers     applications: what a handler does with its messages
    checks       what must hold at the end; verdicts, paths, moves, batch_checks and others add their part
    beliefs      claims and commits that an owner reports, checked at once
    verified     the verifier's judgement of the same logs
"""
