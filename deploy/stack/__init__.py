"""`konverse stack`: up, status, down.

    stack     a running stack as an object: start, restart and kill servers, for tests too
    plan      which servers with which ports and folders
    settings  options of the command
    starting  who starts a stack when two try at once
    status    what runs, since when, with which data
    follow    the servers' logs, followed

A stack belongs to a directory. Two commands with the same directory find the same stack; a lock decides which of them
starts it. `down` deletes what the servers hold, unless `--keep-data` is given. A server that dies is reported with
the end of its log.
"""
