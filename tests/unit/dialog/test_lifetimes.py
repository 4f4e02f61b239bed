"""Each side after the end of its conversation's lifetime (behaviours 122 to 124, 128)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import END_DIALOG, ERROR, read_error
from tests.kit.builders import Pair, Side, identifier
from tests.kit.digests import digest


@pytest.fixture
def pair() -> Pair:
    return Pair()


def at(side: Side, time_ms: int, **columns: Any) -> None:
    """Commit, after a journal record of this time."""
    side.state.now_ms = time_ms
    side.commit(**columns)


def test_each_side_gets_an_error_when_its_lifetime_is_over_behaviours_123_and_124(pair: Pair) -> None:
    conversation = pair.begin(messages=2, lifetime_ms=1_000)
    initiator, target = pair.initiator(conversation), pair.receiver(conversation)
    for side in (pair.home, pair.target):
        at(side, 999)
    assert (initiator.state, target.state) == (State.STARTED_OUTBOUND, State.CONVERSING)
    for side, endpoint in ((pair.home, initiator), (pair.target, target)):
        at(side, 1_000)
        assert endpoint.state is State.ERROR
        assert endpoint.error is not None
        assert read_error(endpoint.error[2] or b"")[0] == -8489
    assert pair.home.outputs(pair.target.address) == pair.target.outputs(pair.home.address) == []
    assert pair.target.receive(target) == [ERROR, "order", "order"]


def state_of(side: Side) -> str:
    """The state of the only conversation, "-" when it is forgotten."""
    return "".join(endpoint.state.code for endpoint in side.state.live()) or "-"


def stays(_pair: Pair, _end: Callable[[Side], None]) -> None:
    """Nothing more happens."""


def peer_ended(pair: Pair, end: Callable[[Side], None]) -> None:
    end(pair.target)
    pair.target.deliver(pair.home)


def peer_failed(pair: Pair, _end: Callable[[Side], None]) -> None:
    pair.target.end(pair.target.state.live()[0], 17, "sold out")
    pair.target.deliver(pair.home)


def it_ended(pair: Pair, end: Callable[[Side], None]) -> None:
    end(pair.home)


OVER: Final = [
    ("SO", Role.INITIATOR, stays, "ER", -8489),
    *(
        case
        for role in Role
        for case in (
            ("CO", role, stays, "ER", -8489),
            ("DI", role, peer_ended, "ER", -8489),
            ("ER", role, peer_failed, "ER", 17),
            ("DO", role, it_ended, "-", None),
        )
    ),
]
"""State and side, the event before, the state after the lifetime, and the waiting Error."""


@pytest.mark.parametrize(
    ("before", "role", "happens", "after", "error"), OVER, ids=[f"{before}-{role.name}" for before, role, *_ in OVER]
)
def test_the_state_of_a_side_after_its_lifetime_behaviours_122_to_124_and_128(  # noqa: PLR0917  # a line of the table
    pair: Pair, before: str, role: Role, happens: Any, after: str, error: int | None
) -> None:
    conversation = pair.begin(lifetime_ms=1_000)
    if before != "SO":
        pair.target.send(pair.receiver(conversation), b"an answer")
        pair.target.deliver(pair.home)
    if role is Role.TARGET:  # the same with the sides exchanged
        pair.home, pair.target = pair.target, pair.home
    side = pair.home
    happens(pair, lambda ending: ending.end(ending.state.live()[0]))
    waiting = [entry for endpoint in side.state.live() for entry in endpoint.queue]
    at(side, 999)
    assert state_of(side) == before
    at(side, 1_000)
    assert state_of(side) == after
    errors = [read_error(endpoint.error[2] or b"")[0] for endpoint in side.state.live() if endpoint.error]
    assert errors == ([] if error is None else [error])
    assert [entry for endpoint in side.state.live() for entry in endpoint.queue] == waiting, "they can be received"
    at(side, 9_000)
    at(side, 9_000)
    assert state_of(side) == after, "it stays until it is ended"
    for endpoint in side.state.live():
        side.end(endpoint)
    assert state_of(side) == "-"


def test_a_side_that_had_received_the_end_gets_the_error_of_its_lifetime_too(pair: Pair) -> None:
    conversation = pair.begin(lifetime_ms=1_000)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    target = pair.receiver(conversation)
    assert pair.target.receive(target) == ["order", END_DIALOG]
    at(pair.target, 1_000)
    assert pair.target.receive(target) == [ERROR]
    assert target.state is State.ERROR


def test_an_end_for_a_side_removed_by_its_lifetime_is_answered(pair: Pair) -> None:
    conversation = pair.begin(lifetime_ms=1_000)
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    at(pair.home, 1_000)
    assert state_of(pair.home) == "-"
    pair.target.end(pair.receiver(conversation))
    pair.target.deliver(pair.home)
    pair.home.deliver(pair.target)
    assert (state_of(pair.home), state_of(pair.target)) == ("-", "-")
    assert pair.target.state.unread == pair.home.state.unread == 0


def test_sides_removed_by_their_lifetimes_free_their_indexes_in_one_order(pair: Pair) -> None:
    for name, lifetime_ms in (("first", 900), ("second", 300), ("third", 600)):
        pair.begin(name, lifetime_ms=lifetime_ms)
        pair.end_call(identifier(name))
    restored = Side("replies")
    restore(restored.state, b"".join(Freeze(pair.home.state).pieces()))
    for side in (pair.home, restored):
        at(side, 2_000)
        assert side.state.free == [0, 1, 2]
    assert digest(restored.state) == digest(pair.home.state)


def test_sides_that_expire_together_go_in_the_same_order_in_a_fold_from_a_snapshot(pair: Pair) -> None:
    """Otherwise the two differ in the order of what they remember of these conversations, which has a bound (M1)."""
    target, first = pair.target, pair.begin("first")
    second = pair.begin("second", lifetime_ms=2_000)
    target.end(pair.receiver(first))
    target.deliver(pair.home)
    pair.home.end(pair.initiator(first))
    pair.home.deliver(target)
    third = pair.begin("third", lifetime_ms=2_000)
    assert pair.receiver(third).index < pair.receiver(second).index, "an index that was free is used again"
    restored = Side("orders")
    restore(restored.state, b"".join(Freeze(target.state).pieces()))
    for side in (target, restored):
        at(side, 2_000)
    assert digest(restored.state) == digest(target.state)
    assert [*restored.state.tombstones] == [*target.state.tombstones]
