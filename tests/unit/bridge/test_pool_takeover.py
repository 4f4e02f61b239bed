"""The remains of a named pool in its home."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from konverse.bridge.client.adoption import AdoptedConversation
from konverse.bridge.client.pool.context import PoolContext
from konverse.bridge.client.pool.groups import PoolGroups
from konverse.bridge.client.pool.keeper import PoolKeeper
from konverse.bridge.client.pool.takeover import PoolTakeover, _left_in
from konverse.bridge.runtime.settings import PoolOptions
from konverse.dialog.pool.recycling import LeftConversation
from konverse.dialog.session.adoption import FoundState
from konverse.dialog.state.mailbox import Bounced
from konverse.schemas.errors import KafkaUnavailable, QueueFull
from konverse.schemas.identifiers import conversation_in, mark_of, pool_group, pool_namespace
from konverse.schemas.wire.records import Bounce, BounceReason
from tests.kit.builders import Pair, address_of, identifier

GROUP = pool_group(pool_namespace("database", "pool"), "key")


def group_of(mark: bytes, key: bytes | None) -> bytes | None:
    """The group of a pool with one key."""
    return GROUP if mark == mark_of(GROUP) and key == b"customer" else None


def test_a_later_bounce_without_a_key_does_not_hide_the_key_of_an_earlier_bounce() -> None:
    home = Pair().home.state
    for number, key in enumerate([b"customer", None]):
        bounce = Bounce(identifier("dead"), number, address_of(), BounceReason.PEER_ENDED)
        conversation = conversation_in(GROUP, bytes(16))
        home.mailbox.keep(Bounced(identifier("dead"), bounce, conversation, number, "order", b"", key))
    keys, left, marks = _left_in(home, group_of)
    assert keys == {GROUP: b"customer"}
    assert left.writers == [identifier("dead")]
    assert set(marks) == {mark_of(GROUP)}


def test_bounces_with_a_key_of_another_pool_are_not_taken_over() -> None:
    home = Pair().home.state
    bounce = Bounce(identifier("dead"), 0, address_of(), BounceReason.PEER_ENDED)
    home.mailbox.keep(Bounced(identifier("dead"), bounce, conversation_in(GROUP, bytes(16)), 0, "order", b"", b"other"))
    keys, left, marks = _left_in(home, group_of)
    assert (keys, left.conversations, marks) == ({}, [], [mark_of(GROUP)])


class Broker:
    """A broker that adopts a dead process's conversations, and whose targets all have EndOfStream."""

    def __init__(self) -> None:
        self.failures: list[Exception | None] = []
        """One for each question to a target and each FIN on a conversation; None: it succeeds, as do all later ones."""
        self.finished: list[bytes] = []
        self.session: Any = SimpleNamespace(dialogs={}, over=None)
        sender: Any = SimpleNamespace(
            session=self.session, ended_by_peer=lambda conversation: self.session.dialogs.pop(conversation, None)
        )
        mailboxes: Any = SimpleNamespace(ask=self._ask, read=lambda *_: ([], None))
        self.context = PoolContext(lambda _: None, self._adopt, sender, mailboxes, dict, lambda _: None, 1.0)  # type: ignore[arg-type, return-value]

    def _fail(self) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure

    def _ask(self, _target: object, question: Any, **_: Any) -> list[bytes]:
        self._fail()
        (asked,) = question.__defaults__
        return [*asked]

    def _adopt(self, wanted: Any, **_: Any) -> list[AdoptedConversation]:
        return [AdoptedConversation(self._dialog(one.conversation_id), FoundState.OPEN) for one in wanted]

    def _dialog(self, conversation: UUID) -> Any:
        def finish() -> None:
            self._fail()
            self.finished.append(conversation.bytes)

        begin = SimpleNamespace(home=address_of("home"), target=address_of("orders"), to_service="store")
        return self.session.dialogs.setdefault(
            conversation.bytes, SimpleNamespace(id=conversation, begin=begin, finish=finish)
        )


@pytest.mark.parametrize("failures", [[KafkaUnavailable("the target")], [None, None, QueueFull("no room")]])
def test_a_takeover_that_fails_half_way_asks_again_whether_streams_have_ended(
    failures: list[Exception | None],
) -> None:
    """Else messages would be sent behind EndOfStream, and the target would discard them with its END."""
    broker = Broker()
    options = PoolOptions("shop", "store", "orders", name="pool")
    keeper = PoolKeeper(options, broker.context)
    takeover = PoolTakeover(keeper, PoolGroups(UUID(int=0), None, keeper.slots))
    left = [conversation_in(GROUP, bytes((number,)) * 16) for number in (1, 2)]
    broker.failures = [*failures]
    with pytest.raises((KafkaUnavailable, QueueFull)):
        takeover._adopt({GROUP: b"customer"}, LeftConversation(left, [], {}, {}))
    takeover._adopt({GROUP: b"customer"}, LeftConversation(left, [], {}, {}))
    assert broker.finished == left
    assert not keeper.slots.sends
    assert [slot.dialog for slot in keeper.slots.by_mark.values()] == [None]
