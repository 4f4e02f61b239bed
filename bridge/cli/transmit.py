"""`konverse transmit`: owns a share of the transmission queue and delivers what clients commit in transactions."""

from __future__ import annotations

import typer

from .connection import Kafka, connected


def transmit(kafka: Kafka = None) -> None:
    """Deliver what clients commit in transactions, until Ctrl-C. Several such processes share the work.

    A process that makes transactions delivers them itself while it lives, unless its setting `transmit` is off. This
    command is needed where clients come and go.
    """
    with connected(kafka) as broker, broker.transmitter() as reader:
        typer.echo(f"transmitting for instance {broker.settings.instance!r}; Ctrl-C ends it", err=True)
        for _ in reader:
            pass
