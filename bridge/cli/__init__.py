"""The `konverse` command.

`main` is the application of typer, and the one place where an error becomes a line of text and an exit code. Each other
module has one command or a few: it parses options, calls `Broker`, and prints. What a command does is decided in
`bridge.admin`, `bridge.views`, `bridge.verifier` and `bridge.worker`; nothing is decided here. Commands of packages
above `bridge` are found by entry points, since nothing here may import them.

Laws:

    - A command that shows something prints a table for people and, with `--json`, JSON for machines.
    - Exit codes mean the same in all commands (docs/operating.md). 1 is left to `verify`: something was refuted.
    - A question is asked on a terminal only; elsewhere `--yes` is required.
    - A text never holds a password, and a table never cuts a word.
    - A command loads what it needs when it runs, so that `--help` is quick.

Modules:

    main          the application: errors, exit codes, registration of the commands
    connection    options that every command has: where Kafka and Redis are, which database
    run, transmit what works until it is stopped
    view, show, why, explain, router           what people look at
    verify        proof or refutation of the logs, with progress
    operate, conversations, accept_loss        what operators do
    routing_table routing tables, by entry or by file
    asking        questions before what cannot be undone
    tables, output, times                      how results, failures and spans of time are printed
"""
