"""Output that cannot be written: characters that the terminal lacks, a closed pipe, a full disk."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

import typer

from konverse.bridge.runtime.exit_codes import BROKEN_PIPE, FAILED

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Disk errors, to be fixed outside konverse."""


def escape_unknown_characters() -> None:
    """Print characters that the terminal's encoding does not have as escapes: a backslash, u and their code point."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def hinders_output(error: Exception) -> bool:
    """Whether `failures_of_output` handles this error."""
    return isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno in _NO_ROOM)


@contextmanager
def failures_of_output() -> Iterator[None]:
    """Turn a failure to print into an exit code: the reader has closed the pipe, or the disk is full."""
    try:
        yield
    except BrokenPipeError as error:
        _silence(sys.stdout)
        raise typer.Exit(BROKEN_PIPE) from error
    except SystemExit as ended:  # how rich exits on a closed pipe
        if isinstance(ended.__context__, BrokenPipeError):
            raise typer.Exit(BROKEN_PIPE) from ended
        raise
    except OSError as error:
        if not hinders_output(error):
            raise
        _silence(sys.stdout)
        try:
            what = error.filename or "the output"
            typer.echo(f"konverse: {what} cannot be written: {error.strerror}; make room and try again", err=True)
        except OSError:
            _silence(sys.stderr)
        raise typer.Exit(FAILED) from error


def _silence(stream: TextIO) -> None:
    """Discard what the stream still buffers: Python would try to write it at exit and would end with code 120."""
    with suppress(OSError, ValueError):  # the streams of tests have no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
