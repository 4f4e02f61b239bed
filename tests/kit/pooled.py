"""A session with one pooled conversation, its home and its target, for tests without servers."""

from __future__ import annotations

from typing import Final

from konverse.dialog.owner.settings import OwnerSettings
from konverse.dialog.owner.staging import Staging
from konverse.dialog.pool.places import Pooled, PoolPlace
from konverse.dialog.pool.recycling import Farewell, answer
from konverse.dialog.session.dialogs import BeginOptions, SessionDialog
from konverse.dialog.session.lanes import Produce
from konverse.dialog.session.session import Session
from konverse.dialog.transaction.received import Rule
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.identifiers import conversation_in, pool_group, pool_namespace, session_writer
from konverse.schemas.wire.operations import SetTimer
from konverse.schemas.wire.records import Timer
from tests.kit.builders import Pair, anything, begin_block, record

EOS: Final = "EndOfStream"
GROUP: Final = pool_group(pool_namespace("database", "pool"), "key")
NOW_MS: Final = 1_800_000_000_000
TIMER_MS: Final = 3_600_000


class Shop:
    """A session with a pooled conversation, and its two partitions."""

    def __init__(self) -> None:
        self.pair = Pair()
        for side in (self.pair.home, self.pair.target):
            side.state.now_ms = NOW_MS
        self.session = Session(session_writer(NOW_MS, 1))
        self.rule: Rule = anything

    def begin(self, number: int = 1) -> SessionDialog:
        conversation = conversation_in(GROUP, bytes(15) + bytes((number,)))
        dialog, hands = self.session.begin(conversation, begin_block(group=GROUP), BeginOptions(returning=True))
        self.arrive(hands)
        self.arrive(self.session.set_timer(dialog, Timer(TIMER_MS, EOS)))
        return dialog

    def send(self, dialog: SessionDialog, body: bytes) -> None:
        self.arrive(self.session.send(dialog, "order", body))

    def arrive(self, hands: list[Produce]) -> list[bytes]:
        """Deliver the records and everything that then becomes due. Returns the kinds of the records."""
        kinds: list[bytes] = []
        while hands:
            for hand in hands:
                side = self.pair.home if hand.address == self.pair.home.address else self.pair.target
                side.take_all([(header, record(body)) for header, _, body in hand.records])
                kinds += [header[:1] for header, _, _ in hand.records]
            hands = self.session.drained()
        return kinds

    def exchange(self) -> None:
        self.pair.home.deliver(self.pair.target)
        self.pair.target.deliver(self.pair.home)

    def transaction(self) -> Transaction:
        """A transaction with the group at home, inside its `with` block."""
        transaction = Staging(self.pair.home.state, self.rule, OwnerSettings()).take()
        assert transaction is not None, "the group is ready"
        return transaction.__enter__()

    def ring(self, dialog: SessionDialog) -> Transaction:
        """Let the dialog's timer fire. Returns the transaction that receives it."""
        self.pair.home.commit(rare=[SetTimer(self.pair.initiator(dialog.conversation).index, 1)])
        for _ in range(2):  # the first commit sets the timer's time
            self.pair.home.state.now_ms += 2
            self.pair.home.commit()
        return self.transaction()

    def settle(self, transaction: Transaction) -> None:
        """The pool's handler handles the transaction, and its calls are committed."""
        answered(transaction)
        self.pair.home.commit(sends=transaction.sends, rare=[*transaction.finishes, *transaction.timers])


def answered(transaction: Transaction, *, keeps: bool = False) -> list[Farewell]:
    """Let the pool's handler handle a transaction that holds no message for the application."""
    rest, farewells = answer(transaction, transaction, lambda _: keeps)
    assert rest == []
    return farewells


def awaited(place: PoolPlace) -> Pooled | None:
    """The last conversation whose bounced messages must be resent before new ones go."""
    return place.awaits[-1] if place.awaits else None
