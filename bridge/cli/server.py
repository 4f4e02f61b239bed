"""`konverse server`: owns a share of the link queue, and routes the conversations that wait there."""

from __future__ import annotations

import signal

import typer

from .connection import Kafka, connected


def server(kafka: Kafka = None) -> None:
    """Route conversations whose service was not found when they began, until SIGTERM or Ctrl-C.

    Several such processes share the work.
    """
    with connected(kafka) as broker, broker.server() as serving:
        signal.signal(signal.SIGTERM, lambda *_: serving.stop())  # its partitions are given back at once
        typer.echo(f"routing delayed conversations of instance {broker.settings.instance!r}; Ctrl-C ends it", err=True)
        serving.run()
