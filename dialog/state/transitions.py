"""The states of a conversation endpoint, as a table; and `next_state`, which looks up the next state in any such table.

Two rules. An endpoint changes state only through `next_state`; WITH CLEANUP alone closes it directly. A pair of state
and event that is not in the table is a bug in konverse and raises AssertionError: `ingest` has judged every record from
outside, and `transaction` has checked every call of an application.

Theory. Each side of a conversation has an endpoint of its own, and the two never agree on the instant of a change. A
side that ends goes to DISCONNECTED_OUTBOUND and waits for the peer's END. A side that first receives the peer's END
goes to DISCONNECTED_INBOUND, still receives the messages that came before it, and ends when the application says so.
The side that ends second sends END too. Applications never see that END: it lets the first side forget. So CLOSED never
lasts: an endpoint that reaches it is forgotten (protocol.md section 3).

Source of names and codes: service-broker.md 3.2.

Dialogs of sessions (`dialog.session.dialogs`), pooled conversations (`dialog.pool.places`) and owners
(`dialog.owner.events`) have tables of the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final, TypeVar

_State = TypeVar("_State", bound=Enum)
_Event = TypeVar("_Event", bound=Enum)


class State(IntEnum):
    """State of one side; `code` is the two-letter form of `sys.conversation_endpoints`."""

    STARTED_OUTBOUND = 0
    STARTED_INBOUND = 1
    CONVERSING = 2
    DISCONNECTED_INBOUND = 3
    DISCONNECTED_OUTBOUND = 4
    ERROR = 5
    CLOSED = 6

    @property
    def code(self) -> str:
        """SO, SI, CO, DI, DO, ER or CD."""
        return _CODES[self]


_CODES: Final = ("SO", "SI", "CO", "DI", "DO", "ER", "CD")


class Event(IntEnum):
    """An event that changes the state of an endpoint."""

    SENT = 0
    RECEIVED = 1
    PEER_ENDED = 2
    PEER_FAILED = 3
    END = 4


_SO, _SI, _CO, _DI, _DO, _ER, _CD = State
_SENT, _RECEIVED, _PEER_ENDED, _PEER_FAILED, _END = Event

TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (_SO, _SENT): _CO,
    (_SO, _RECEIVED): _CO,
    (_SO, _PEER_ENDED): _DI,
    (_SO, _PEER_FAILED): _ER,
    (_SO, _END): _DO,
    (_CO, _SENT): _CO,
    (_CO, _RECEIVED): _CO,
    (_CO, _PEER_ENDED): _DI,
    (_CO, _PEER_FAILED): _ER,
    (_CO, _END): _DO,
    (_DI, _PEER_FAILED): _ER,
    (_DI, _END): _CD,
    (_DO, _PEER_ENDED): _CD,
    (_DO, _PEER_FAILED): _CD,
    (_ER, _END): _CD,
}

SENDING: Final = (_CO, _SO)
"""States in which this side may send."""

OVER: Final = (_DO, _CD)
"""States of a side that has ended itself."""

RECEIVING: Final = (_CO, _SO)
"""States in which further messages of the peer are accepted."""


def next_state(table: Mapping[tuple[_State, _Event], _State], state: _State, event: _Event) -> _State:
    """The state after `event`; AssertionError for a pair that the table does not have."""
    after = table.get((state, event))
    assert after is not None, f"{event.name} cannot happen in {state.name}"
    return after
