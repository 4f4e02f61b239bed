"""The `konverse` command.

    main          the one place where an error becomes a line of text and an exit code
    connection    options that every command has: where Kafka and Redis are, which database
    run, transmit what works until it is stopped
    view, show, tables, why, explain, router   what people look at
    verify        proof or refutation, with progress
    operate, conversations, accept_loss        what operators do
    routing_table routing tables, by entry or by file
    times         spans of time as people write them

Each command prints a table for people and, with `--json`, one JSON object a line for machines. Exit codes mean the
same in all commands (docs/operating.md). Questions are asked on a terminal only; elsewhere `--yes` is required. A
text never holds a password, and a table never cuts a word.
"""
