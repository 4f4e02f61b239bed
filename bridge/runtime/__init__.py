"""The process-level foundation of konverse: settings, threads, logs, shutdown. It connects to no server.

Every other package of `bridge` may import this one; it imports none of them. Applications (`konverse.connect`),
`konverse run` and its worker processes all go through it.

    settings      arguments, then KONVERSE_… variables, then one TOML file, then defaults
    arguments     checks the arguments of public calls before a call does anything
    threads       background threads that log why they end
    clock         milliseconds since the machine started: for waiting, never for decisions
    ids           random ids, drawn many at a time
    collector     thresholds of Python's garbage collector for large, long-lived state
    forks         closes the parent's clients in a forked child
    exits         flushes senders when a program ends without `close`, or logs what is lost
    shutdown      hides lost-connection log lines while a process stops
    presence      a shared byte that tells a supervisor whether a dead process was in a handler
    logs          log lines for people, or JSON lines for machines
    log_throttle  logs a repeated line once, then every 30 seconds
    exit_codes    exit codes of the `konverse` command
    redis_urls    checks Redis URLs and masks their passwords

Laws:

1. Two clocks must not be mixed. Timeouts of calls run on the clock of this machine. Everything that a conversation
   promises (timers, lifetimes, ages) runs on Kafka's clock, which comes with the records: see `bridge.kafka.clock`.
2. Background threads are daemons: they never keep a program alive. Messages already sent are flushed at exit, for
   10 seconds at most.
3. A forked child never uses a client of its parent. It finds them closed and connects again.
4. A password never appears in a log line, an error or a representation.
"""
