"""The next step of the saga's conductor, by the open dialogs in the conversation group."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import konverse
from examples.patterns.saga import DONE, ORDER, STEPS, TRAVELLER, UNDO, UNDONE, conduct
from konverse.schemas.system_messages import error_body

FLIGHT, HOTEL, CAR = STEPS


class Group:
    """A conversation group with a traveller and some steps, and the conductor's actions in a transaction."""

    def __init__(self, *steps: str, traveller: str = "CO") -> None:
        self.traveller = self._side(TRAVELLER, traveller)
        self.steps = {service: self._side(service, "CO") for service in steps}
        self.dialogs = [self.traveller, *self.steps.values()]
        self.messages: list[Any] = []
        self.did: list[tuple[str, ...]] = []

    def _side(self, far_service: str, code: str) -> Any:
        is_initiator = far_service != TRAVELLER
        return SimpleNamespace(far_service=far_service, state=SimpleNamespace(code=code), is_initiator=is_initiator)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.messages)

    def begin(self, _from: str, to_service: str, _contract: str, *, related_to: Any) -> Any:
        assert related_to in self.dialogs
        return self._side(to_service, "SO")

    def send(self, dialog: Any, message_type: str, _body: bytes) -> None:
        self.did.append((message_type, dialog.far_service))

    def end(self, dialog: Any, *, error: int = 0, description: str = "") -> None:
        self.did.append(("error", description, dialog.far_service) if error else ("end", dialog.far_service))

    def hears(self, service: str, kind: str, body: bytes = b"Oslo") -> list[tuple[str, ...]]:
        """The conductor's actions after a message of the traveller or a step."""
        dialog = self.traveller if service == TRAVELLER else self.steps[service]
        self.messages.append(SimpleNamespace(type=kind, dialog=dialog, body=body))
        conduct(cast("konverse.Transaction", self))
        return self.did


def test_the_next_step_is_ordered_when_those_before_it_are_done() -> None:
    assert Group().hears(TRAVELLER, ORDER) == [(ORDER, FLIGHT)]
    assert Group(FLIGHT).hears(FLIGHT, DONE) == [(ORDER, HOTEL)]
    assert Group(FLIGHT, HOTEL).hears(HOTEL, DONE) == [(ORDER, CAR)]


def test_the_last_step_confirms_all_of_them() -> None:
    ends = [("end", service) for service in (FLIGHT, HOTEL, CAR, TRAVELLER)]
    assert Group(*STEPS).hears(CAR, DONE) == [(DONE, TRAVELLER), *ends]


def test_completed_steps_are_undone_in_reverse_order() -> None:
    failed = error_body(409, "no car")
    assert Group(*STEPS).hears(CAR, konverse.ERROR, failed) == [("end", CAR), (UNDO, HOTEL)]
    assert Group(FLIGHT, HOTEL).hears(HOTEL, UNDONE, b"no car") == [("end", HOTEL), (UNDO, FLIGHT)]
    assert Group(FLIGHT).hears(FLIGHT, UNDONE, b"no car") == [("end", FLIGHT), ("error", "no car", TRAVELLER)]


def test_a_step_that_is_done_while_the_saga_goes_back_is_not_followed_by_another() -> None:
    assert Group(HOTEL).hears(HOTEL, DONE) == []


def test_a_step_completed_after_the_traveller_has_ended_is_undone() -> None:
    assert Group(traveller="DI").hears(TRAVELLER, ORDER) == []
    assert Group(FLIGHT, traveller="DI").hears(TRAVELLER, konverse.END_DIALOG) == []
    assert Group(FLIGHT, traveller="DI").hears(FLIGHT, DONE) == [(UNDO, FLIGHT)]
    assert Group(traveller="DI").hears(TRAVELLER, konverse.END_DIALOG) == [("end", TRAVELLER)]
