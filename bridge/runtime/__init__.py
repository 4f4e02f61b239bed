"""What every process of konverse has, before it knows of Kafka.

    settings      arguments, then KONVERSE_… variables, then one TOML file, then defaults
    arguments     wrong arguments of public calls, refused before anything is done
    threads       background threads that report why they end
    clock         milliseconds since the machine started: for waiting, never for what counts
    ids           random ids, drawn many at a time
    collector     the garbage collector, kept away from long-lived state
    forks         a forked child cannot use the clients of its parent: it finds them closed
    exits         a program that ends without `close` still delivers, or reports what it gives up
    shutdown      ends of connections that are no news while a process stops
    presence      a byte on disk that tells a supervisor whether a dead process was in a handler
    logs          lines for people or JSON lines for machines
    log_throttle  a line that would come again and again comes once, then every 30 seconds
    exit_codes    what a command's exit code means
    redis_urls    URLs without their passwords

Two clocks must not be mixed. Timeouts of calls run on the clock of this machine. Everything that a conversation
promises (timers, lifetimes, ages) runs on Kafka's clock, which comes with the records: see `bridge.kafka.clock`.
"""
