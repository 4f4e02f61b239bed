"""The `konverse` command.

`main` is the typer application, and the one place where an error becomes a line of text and an exit code. Each other
module has one command or a few: it parses options, calls `Broker`, and prints. The work of a command is done in
`bridge.admin`, `bridge.views`, `bridge.verifier` and `bridge.worker`; this package makes no decisions. Commands of
packages above `bridge` are found by entry points, since nothing here may import them.

Laws:

    - A command that shows something prints a table for people and, with `--json`, JSON for machines.
    - Exit codes mean the same in all commands (docs/operating.md). 1 is reserved for `verify`: something was refuted.
    - A question is asked on a terminal only; elsewhere `--yes` is required.
    - No output contains a password, and no table cuts a word.
    - A command loads what it needs when it runs, so that `--help` is quick.

Modules:

    main                                  the application: errors, exit codes, registration of the commands
    connection                            options of every command: addresses of Kafka and Redis, the database
    run, transmit                         commands that run until stopped
    view, show, lag, why                  commands that show states
    explain, route, router                commands that show decisions and traffic
    acl                                   the Kafka rights of a kind of process
    verify                                proof or refutation of the logs, with progress
    operate, conversations, accept_loss   commands of operators
    routing_table                         routing tables, by entry or by file
    confirmation                          confirmation of actions that cannot be undone
    tables, output                        printing of results, and output failures
    values                                values of options: durations, seconds and texts
"""
