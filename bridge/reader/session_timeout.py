"""Warns of a long session timeout of consumer groups: the partitions of a killed reader wait that long."""

from __future__ import annotations

import logging
from typing import Final

from konverse.bridge.kafka.topics import Topics

log: Final = logging.getLogger("konverse.reader")

LONG_SESSION_S: Final = 10.0
"""A session timeout above this is worth a warning: the partitions of a killed worker wait that long."""


class SessionTimeoutCheck:
    """Warns of a long session timeout, once for each `Broker`."""

    def __init__(self, topics: Topics, protocol: str) -> None:
        self._topics = topics
        self._protocol = protocol
        self._done = False

    def run(self) -> None:
        """Ask Kafka, and warn if needed. Later calls do nothing."""
        if not self._done:
            self._done = True
            warn_of_a_long_session(self._topics.session_timeout_s(), self._protocol)

    def skip(self) -> None:
        """Never ask. For the workers of `konverse run`, which has asked and warned before it starts them."""
        self._done = True


def warn_of_a_long_session(seconds: float | None, protocol: str) -> None:
    """Warn if the partitions of a dead worker would wait long for another one, and name the setting to change.

    `seconds` is None when Kafka does not tell.
    """
    if seconds is None:
        log.info(
            "the session timeout of consumer groups cannot be read, so it is unknown how long the partitions of a "
            "killed worker wait for another worker: the brokers' setting group.consumer.session.timeout.ms (Kafka's "
            "default is 45 s) needs the right DESCRIBE_CONFIGS on the cluster"
        )
        return
    if seconds <= LONG_SESSION_S:
        return
    name, place = (
        ("session.timeout.ms", "the setting `client` of each worker")
        if protocol == "classic"
        else ("group.consumer.session.timeout.ms", "the brokers")
    )
    log.warning(
        "the partitions of a killed worker wait %g s for another worker (%s, set here or by Kafka's default); "
        "to shorten this to 3 s, set %s=2000 and a heartbeat interval of 200 ms in %s",
        seconds,
        name,
        name,
        place,
    )
