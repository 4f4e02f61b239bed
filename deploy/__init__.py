"""The local stack: Kafka and Redis as plain processes on this machine; and the files for Docker Compose.

The stack is for developers, tests and demos: it starts in about two seconds, and keeps its data on request. Production
runs against any Kafka, so nothing in the library imports this package. The command `konverse stack` and tests drive it,
by `LocalStack`, which is loaded on first use.

Laws:

    - Only servers that the stack has started are ended, and only files that it has made are removed. A process is
      known by pid and start time, never by name; a folder is known by its mark.
    - An ephemeral stack ends with its owner, even by kill -9. A lasting stack ends by `konverse stack down`.
    - A start that fails or is interrupted leaves nothing behind.
    - Servers listen on the loopback interface alone, on ports that were free.
    - One command at a time changes a stack: each holds the lock of its folder.
    - An error says what this machine lacks and which command helps.

Packages, each of which may import those below it:

    cli       `konverse stack` up, status, logs and down
    stack/    a stack as an object: its plan, its start, its state
    servers/  how each server is configured, started and ended
    java/     a Java runtime and the jars of Kafka, found or downloaded
    host/     ports, processes, folders and locks of this machine, and errors for their faults

`compose.yaml` and the Dockerfile describe the same servers in containers. `tests/compose` builds and tries them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from konverse.deploy.stack.settings import StackSettings
    from konverse.deploy.stack.stack import LocalStack

__all__ = ["LocalStack", "StackSettings"]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name in __all__:
        from importlib import import_module

        module = "stack" if name == "LocalStack" else "settings"
        return getattr(import_module(f"konverse.deploy.stack.{module}"), name)
    raise AttributeError(f"module 'konverse.deploy' has no attribute {name!r}")
