"""Redis shows the state of conversations to people and tools. Nothing in konverse reads it to decide anything.

    client   connections that try once and never print a password; words for refusals
    view     what owners write: one script, which refuses an older claim and an older journal offset

A view that was lost, or flushed, or never written is written again as a whole by the owner. Work on conversations
goes on when Redis is away, full, slow or of another opinion about passwords; the log says so once, with the cause.

The scripts (`bridge/scripts/*.lua`) are fenced: each call names the claim on whose behalf it writes. So an owner that
was paused for an hour cannot overwrite the view of its successor. Keys of one partition share a hash tag, which keeps
them in one slot of a cluster.

The lease of a named pool and the figures of routers are kept here as well. Both are hints: when Redis lies, a second
user of a pool is told later, by the logs.
"""
