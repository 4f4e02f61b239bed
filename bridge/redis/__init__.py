"""Redis shows the state of conversations to people and tools. No decision of the protocol depends on it.

    client   clients that try each command once; texts about Redis errors, without passwords
    view     the view of a queue: written by owners, read by views and tools

Owners write the view through one script (protocol.md section 8), from a separate thread:

- A state is shown only when its COMMIT is known to be valid.
- Each call of the script names a claim and a journal offset. The script refuses a write that is older than what Redis
  holds, so an owner that was paused for an hour cannot overwrite the view of its successor.
- A view that is missing, flushed or incomplete is rewritten whole by the partition's owner.
- No commit waits for Redis. When Redis is unreachable, full, slow or refuses the password, conversations continue,
  and the log reports the cause once.

A tool that finds Redis behind the logs folds the logs instead (`bridge.views.partitions`).

All keys of a partition share a hash tag, so that they are in one slot of a Redis cluster.

Other packages keep two more things in Redis: the lease of each named pool (`bridge.client.pool.lease`) and the figures
of routers (`bridge.router.figures`). Nothing depends on them. If a lease is lost, a second user of the pool is not
refused when it opens the pool; the first one is stopped later, by the logs.
"""
