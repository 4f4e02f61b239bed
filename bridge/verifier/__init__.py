"""Proves or refutes what konverse promises, by the logs alone: a second reading of the protocol.

Nothing here is shared with `konverse.dialog`, only the published layouts of `konverse.schemas`: where the two readings
differ, one of them does not keep the protocol. `journals` and the modules of the second fold are pure; the simulator
holds the product against them too. `check` compares the partitions with each other, `reading` takes the logs from a
live system.
"""
