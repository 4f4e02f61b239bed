"""`konverse transmit`: owns a share of the transmission queue and delivers the transactions that clients commit."""

from __future__ import annotations

import signal

import typer

from .connection import Kafka, connected


def transmit(kafka: Kafka = None) -> None:
    """Deliver the transactions that clients commit, until SIGTERM or Ctrl-C. Several such processes share the work.

    A process that makes transactions delivers them itself while it lives, unless its setting `transmit` is off. This
    command is needed where clients are short-lived.
    """
    with connected(kafka) as broker, broker.transmitter() as reader:
        signal.signal(signal.SIGTERM, lambda *_: reader.stop())  # its partitions are given back at once
        typer.echo(f"transmitting for instance {broker.settings.instance!r}; Ctrl-C ends it", err=True)
        for _ in reader:
            pass
