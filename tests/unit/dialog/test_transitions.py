"""The tables of states, entry by entry. Those of endpoints: service-broker.md 3.2."""

from __future__ import annotations

import itertools
from typing import Any, Final

import pytest

from konverse.dialog.owner.events import PHASE_TRANSITIONS, Phase, PhaseEvent
from konverse.dialog.pool.places import STAGE_TRANSITIONS, Stage, StageEvent
from konverse.dialog.session.dialogs import DIALOG_TRANSITIONS, DialogEvent, DialogState
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
            next_state(TRANSITIONS, state, event)
    else:
        assert next_state(TRANSITIONS, state, event).code == after


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


NEVER: Final = frozenset[str]()
DIALOGS: Final = {  # the events that can happen in each state
    "BEGINNING": {"STAGED", "BEGUN", "ADOPTED", "END_CALLED", "OVER"},
    "STAGED": {"ROLLED_BACK", "COMMITTED"},
    "OPEN": {"END_CALLED", "OVER"},
    "ENDING": {"OVER"},
    "ENDED": {"END_CALLED", "OVER"},  # after the peer's end an application still calls END
    "NOT_BEGUN": NEVER,
}
STAGES: Final = {
    "OPEN": {"RECYCLED", "BROKEN", "OVER"},
    "CLOSING": {"BROKEN", "OVER"},
    "BROKEN": {"JUDGED", "OVER"},
    "OVER": NEVER,
}
ALWAYS: Final = {"STOP", "HALT"}
PHASES: Final = {
    "FOLLOWING": {"FOLLOW", "RECOVER"} | ALWAYS,
    "RECOVERING": {"FOLLOW", "RECOVER", "FOLDED"} | ALWAYS,
    "CLAIMING": {"CLAIMED"} | ALWAYS,
    "READING_BACK": {"LED"} | ALWAYS,
    "LEADING": ALWAYS,
    "STOPPED": NEVER,  # `Owner.step` has no effect any more
    "HALTED": NEVER,
}


@pytest.mark.parametrize(
    ("table", "states", "events", "possible"),
    [
        (DIALOG_TRANSITIONS, DialogState, DialogEvent, DIALOGS),
        (STAGE_TRANSITIONS, Stage, StageEvent, STAGES),
        (PHASE_TRANSITIONS, Phase, PhaseEvent, PHASES),
    ],
    ids=["dialogs of sessions", "pooled conversations", "owners"],
)
def test_a_state_has_exactly_the_events_that_can_happen_in_it(
    table: Any, states: Any, events: Any, possible: Any
) -> None:
    assert {state.name: {event.name for event in events if (state, event) in table} for state in states} == possible


def test_a_dialog_that_is_over_or_was_never_begun_stays_so() -> None:
    after = {(state.name, event.name): then.name for (state, event), then in DIALOG_TRANSITIONS.items()}
    assert {then for (state, _), then in after.items() if state == "ENDED"} == {"ENDED"}
    assert {then for (_, event), then in after.items() if event == "OVER"} == {"ENDED"}
    assert {then for (_, event), then in after.items() if event == "ROLLED_BACK"} == {"NOT_BEGUN"}


def test_only_a_claim_that_was_read_back_leads() -> None:
    assert {pair for pair, then in PHASE_TRANSITIONS.items() if then is Phase.LEADING} == {
        (Phase.READING_BACK, PhaseEvent.LED)
    }


def test_an_owner_that_has_left_never_comes_back() -> None:
    assert not {state for state, _ in PHASE_TRANSITIONS} & {Phase.STOPPED, Phase.HALTED}
