"""Log lines of Kafka's clients about connections that end while a process stops."""

from __future__ import annotations

import logging

import pytest

from konverse.bridge.runtime.shutdown import ShutdownLogFilter

REFUSED = "127.0.0.1:9092/1: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)"
LOST = (
    f"FAIL [konverse#producer-4] [thrd:127.0.0.1:9092/1]: {REFUSED}",
    "FAIL [konverse#consumer-1] [thrd:GroupCoordinator]: GroupCoordinator: 127.0.0.1:9092: Disconnected (after 12ms)",
    "ERROR [konverse#producer-1] [thrd:127.0.0.1:9092/1]: 1/1 brokers are down",
)
OTHERS = ("FAIL [konverse#producer-1]: SASL authentication error: Authentication failed", "CONFWARN: a property is odd")


def passes(departing: ShutdownLogFilter, line: str) -> bool:
    return departing.filter(logging.LogRecord("konverse.kafka", logging.WARNING, "", 0, line, (), None))


@pytest.mark.parametrize("line", [*LOST, *OTHERS])
def test_a_lost_connection_is_no_news_while_a_process_stops_and_else_it_is(line: str) -> None:
    departing = ShutdownLogFilter()
    assert passes(departing, line)
    with departing.closing(), departing.closing():
        assert passes(departing, line) is (line in OTHERS)
    assert passes(departing, line)
    departing.begin()
    assert passes(departing, line) is (line in OTHERS)
