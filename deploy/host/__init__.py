"""What a stack needs of its machine.

    ports      free ports, and ids of clusters
    processes  processes found by pid and start time, so that a pid that is used again is not killed
    spawn      processes that end with their parent, or outlive it, as wanted
    folders    directories of stacks, with their rights
    locks      one starter at a time
    faults     disk full, no rights, no such program: each with a text of its own
    guard      ends what is left when a test run dies
    progress   lines for people while something takes long
    tools      programs that must be there

Nothing here knows Kafka or Redis.
"""
