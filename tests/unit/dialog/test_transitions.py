"""The table of states, entry by entry (service-broker.md 3.2)."""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from konverse.dialog.state.transitions import RECEIVING, SENDING, TRANSITIONS, Event, State, next_state

DOCUMENTED: Final = {
    ("SO", Event.SENT): "CO",
    ("SO", Event.RECEIVED): "CO",
    ("SO", Event.PEER_ENDED): "DI",
    ("SO", Event.PEER_FAILED): "ER",
    ("SO", Event.END): "DO",
    ("CO", Event.SENT): "CO",
    ("CO", Event.RECEIVED): "CO",
    ("CO", Event.PEER_ENDED): "DI",
    ("CO", Event.PEER_FAILED): "ER",
    ("CO", Event.END): "DO",
    ("DI", Event.PEER_FAILED): "ER",
    ("DI", Event.END): "CD",
    ("DO", Event.PEER_ENDED): "CD",
    ("DO", Event.PEER_FAILED): "CD",
    ("ER", Event.END): "CD",
}


@pytest.mark.parametrize(("state", "event"), [*itertools.product(State, Event)], ids=lambda value: value.name)
def test_a_pair_is_in_the_table_or_a_mistake_of_ours(state: State, event: Event) -> None:
    after = DOCUMENTED.get((state.code, event))
    if after is None:
        with pytest.raises(AssertionError, match=f"{event.name} cannot happen in {state.name}"):
            next_state(state, event)
    else:
        assert next_state(state, event).code == after


def test_nothing_leads_out_of_closed_or_into_started() -> None:
    assert not [state for state, _ in TRANSITIONS if state is State.CLOSED]
    assert not {State.STARTED_OUTBOUND, State.STARTED_INBOUND} & {*TRANSITIONS.values()}


def test_exactly_the_states_that_may_send_may_receive() -> None:
    assert {state.code for state in SENDING} == {state.code for state in RECEIVING} == {"SO", "CO"}


def test_a_state_that_may_send_or_receive_has_an_entry_for_it() -> None:
    assert all((state, Event.SENT) in TRANSITIONS for state in SENDING)
    assert all((state, Event.RECEIVED) in TRANSITIONS for state in RECEIVING)
    assert {state for state, event in TRANSITIONS if event is Event.RECEIVED} == {*RECEIVING}


def test_codes_are_those_of_conversation_endpoints() -> None:
    assert [state.code for state in State] == ["SO", "SI", "CO", "DI", "DO", "ER", "CD"]
