"""Each message is received once and in call order, whatever happens to the session's producer (I4, I5, I20)."""

from __future__ import annotations

from itertools import chain
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.session import Session
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Address, Role
from tests.kit.builders import Row, Side, begin_block, identifier, record

DIALOGS: Final = ["a", "b", "c"]

calls: Final = st.one_of(
    st.tuples(st.sampled_from(["begin", "send", "send", "send", "end"]), st.integers(0, len(DIALOGS) - 1)),
    st.tuples(st.sampled_from(["drain", "drain", "fail", "again"]), st.integers(0, 5)),
)
lives: Final = st.lists(st.lists(calls, max_size=10), max_size=8).map(lambda parts: [*chain.from_iterable(parts)])


class Kafka:
    """A producer between a session and its destinations that fails, with records that arrive late."""

    def __init__(self) -> None:
        self.session = Session(identifier("a session"))
        self.home, self.target = Side("replies"), Side("orders")
        self.sides = {side.address: side for side in (self.home, self.target)}
        self.on_its_way: list[tuple[Address, Row]] = []
        self.past: list[tuple[Address, Row]] = []

    def hand(self, hands: list[Produce]) -> None:
        for hand in hands:
            self.on_its_way += [(hand.address, (header, record(body))) for header, _, body in hand.records]

    def write(self, rows: list[tuple[Address, Row]]) -> None:
        for address, row in rows:
            self.sides[address].take_all([row])

    def drain(self) -> None:
        """The producer runs empty."""
        self.write(self.on_its_way)
        self.past += self.on_its_way
        self.on_its_way = []
        self.hand(self.session.drained())

    def fail(self, written: int) -> None:
        """The producer fails: some of its records are in the log, the others are lost or late."""
        self.write(self.on_its_way[:written])
        self.past += self.on_its_way
        self.on_its_way = []
        self.hand(self.session.restart())

    def again(self, count: int) -> None:
        """Requests of earlier producers arrive, late or again."""
        self.write(self.past[len(self.past) - count :])


@given(lives)
def test_every_message_is_received_once_and_in_call_order(life: list[tuple[str, int]]) -> None:
    kafka = Kafka()
    session = kafka.session
    dialogs: dict[bytes, SessionDialog] = {}
    sent: dict[bytes, list[bytes]] = {}
    for what, number in life:
        conversation = identifier(DIALOGS[number % len(DIALOGS)])
        dialog = dialogs.get(conversation)
        match what:
            case "begin" if dialog is None:
                dialogs[conversation], hands = session.begin(conversation, begin_block(group=conversation))
                sent[conversation] = []
                kafka.hand(hands)
            case "send" if dialog and dialog.waiting_end is None:
                sent[conversation].append(str(len(sent[conversation])).encode())
                kafka.hand(session.send(dialog, "order", sent[conversation][-1]))
            case "end" if dialog and dialog.waiting_end is None:
                kafka.hand(session.end(dialog))
            case "drain":
                kafka.drain()
            case "fail":
                kafka.fail(number)
            case "again":
                kafka.again(number)
            case _:
                pass
    while not session.idle:
        kafka.drain()
    assert {conversation: received(kafka.target, conversation) for conversation in sent} == sent
    assert kafka.target.state.statistics.bounced == kafka.target.state.statistics.misnumbered == 0
    assert {conversation for conversation, dialog in dialogs.items() if dialog.waiting_end is not None} == {
        endpoint.conversation for endpoint in kafka.home.state.live() if endpoint.state is State.DISCONNECTED_OUTBOUND
    }


def received(side: Side, conversation: bytes) -> list[bytes | None]:
    """Bodies that wait for the target of a conversation."""
    endpoint = side.state.endpoint(Role.TARGET, conversation)
    return [entry[2] for entry in endpoint.queue] if endpoint else []
