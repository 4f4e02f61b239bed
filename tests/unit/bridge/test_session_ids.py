"""Destinations' answers about the former ids of a session: when to ask again, and why one cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.bridge.client import session_ids as module
from konverse.bridge.client.session_ids import ASK_AGAIN_S, SessionRenewal
from konverse.dialog.session.rotation import CloseQuery, Unheard
from konverse.schemas.errors import AccessDenied
from tests.kit.builders import address_of, identifier

ORDERS = CloseQuery(address_of("orders"), identifier("former"), identifier("present"), 7)


class Ids:
    """Ids of one session."""

    topic = "konverse.open"

    def new(self, timeout_s: float | None = None) -> tuple[bytes, int]:
        """The same id each time."""
        return identifier("present"), 0


class Destination:
    """A log that can be read, or not."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def catch_up(self) -> None:
        """Read on."""
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Close the clients."""


class Clock:
    """Milliseconds since the machine was started."""

    def __init__(self) -> None:
        self.ms = 1_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "now_ms", lambda: clock.ms)
    return clock


@pytest.fixture
def destination() -> Destination:
    return Destination()


@pytest.fixture
def renewing(monkeypatch: pytest.MonkeyPatch, clock: Clock, destination: Destination) -> SessionRenewal:
    follow: Any = lambda _: destination  # noqa: E731
    renewing = SessionRenewal(Ids(), follow)
    renewing.session.takeover.behind[ORDERS.address] = []
    monkeypatch.setattr(renewing.session.takeover, "wanted", lambda: [ORDERS])
    monkeypatch.setattr(module, "reply", lambda _state, _wanted: Unheard.LATER)
    return renewing


def test_a_destination_that_cannot_tell_yet_is_asked_at_once_also_on_a_machine_that_was_just_started(
    renewing: SessionRenewal, clock: Clock
) -> None:
    assert renewing.due
    assert list(renewing.answers()) == [(ORDERS, Unheard.LATER)]
    clock.ms += 1_000
    assert list(renewing.answers()) == []
    clock.ms += round(ASK_AGAIN_S * 1_000)
    assert list(renewing.answers()) == [(ORDERS, Unheard.LATER)]


def test_another_former_id_is_asked_about_at_once(
    renewing: SessionRenewal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(renewing.answers())
    later = ORDERS._replace(asked=identifier("another"))
    monkeypatch.setattr(renewing.session.takeover, "wanted", lambda: [later])
    clock.ms += 1_000
    assert list(renewing.answers()) == [(later, Unheard.LATER)]


def test_why_a_destination_cannot_be_read_is_kept_until_it_can(
    renewing: SessionRenewal, destination: Destination
) -> None:
    destination.error = AccessDenied("User:shop may not READ topic orders.queue.journal")
    assert list(renewing.answers()) == []
    assert renewing.trouble == "User:shop may not READ topic orders.queue.journal"
    destination.error = None
    assert list(renewing.answers()) == [(ORDERS, Unheard.LATER)]
    assert renewing.trouble is None
