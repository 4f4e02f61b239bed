"""Endpoints in the table, and conversation groups of several members."""

from __future__ import annotations

import pytest

from konverse.dialog.state.endpoint import Clock
from konverse.dialog.state.named import How, Over
from konverse.schemas.errors import PartitionHalted
from konverse.schemas.groups import own_group
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.journal import EndOperation
from tests.kit.builders import GROUP, Pair, Side, identifier
from tests.kit.digests import digest


@pytest.fixture
def pair() -> Pair:
    return Pair()


def finish(pair: Pair, conversation: bytes) -> None:
    """Both sides end, and both know."""
    pair.end_call(conversation)
    pair.home.deliver(pair.target)
    pair.target.end(pair.receiver(conversation))
    pair.target.deliver(pair.home)


def digest_of(*sides: Side) -> list[bytes]:
    return [digest(side.state) for side in sides]


# ------------------------------------------------------------------------------------------------------- the table


def test_an_index_is_given_again_when_its_endpoint_is_forgotten(pair: Pair) -> None:
    first, second = pair.begin("first"), pair.begin("second")
    assert [endpoint.index for endpoint in pair.target.state.live()] == [0, 1]
    finish(pair, first)
    assert pair.target.state.free == [0]
    third = pair.begin("third")
    assert (pair.receiver(second).index, pair.receiver(third).index) == (1, 0)
    assert pair.target.state.free == []


def test_an_endpoint_with_a_used_index_starts_from_nothing(pair: Pair) -> None:
    first = pair.begin("first", messages=5)
    pair.target.send(pair.receiver(first), b"a", b"b")
    finish(pair, first)
    second = pair.begin("second")
    receiver = pair.receiver(second)
    assert (receiver.index, receiver.received, receiver.consumed, receiver.sent) == (0, 1, 0, 0)
    pair.target.send(receiver, b"c")
    assert [sent.envelope.sequence for sent in pair.target.outputs(pair.home.address)] == [0]


@pytest.mark.parametrize("index", [0, 7, 2**63])
def test_a_commit_about_an_endpoint_that_is_not_there_halts(pair: Pair, index: int) -> None:
    finish(pair, pair.begin("first"))
    for columns in (
        {"receive_endpoints": [index], "receive_positions": [4]},
        {"sends": [(index, "t", [b""])]},
        {"ends": [EndOperation(index)]},
        {"ends": [EndOperation(-1)]},
    ):
        with pytest.raises(PartitionHalted, match=r"orders/0 names endpoint"):
            pair.target.commit(**columns)


def test_a_finished_conversation_leaves_nothing_behind(pair: Pair) -> None:
    finish(pair, pair.begin("first"))
    for side in (pair.home, pair.target):
        state = side.state
        assert state.live() == []
        assert state.sides == ({}, {})
        left = [state.lanes, state.groups, state.tombstones, state.mailbox, state.beginning]
        assert not any(left), left
        assert state.unread == 0


def test_a_conversation_id_that_is_over_can_be_used_again(pair: Pair) -> None:
    finish(pair, pair.begin("first", messages=3))
    conversation = pair.begin("first", messages=2)
    assert pair.target.waiting(pair.receiver(conversation)) == ["order", "order"]
    assert pair.receiver(conversation).received == 2


# ---------------------------------------------------------------------------------------------------------- groups


def test_conversations_with_one_group_are_its_members(pair: Pair) -> None:
    one, two = pair.begin("one", group=GROUP), pair.begin("two", group=GROUP)
    alone = pair.begin("alone")
    assert [member.conversation for member in pair.initiator(one).members] == [one, two]
    assert pair.initiator(two).members is pair.initiator(one).members
    assert pair.initiator(one).group_id == GROUP
    assert [member.conversation for member in pair.initiator(alone).members] == [alone]
    assert pair.initiator(alone).group_id == alone


def test_a_conversation_related_to_another_makes_a_group_of_both(pair: Pair) -> None:
    founder = pair.begin("founder")
    related = pair.begin("related", group=founder)
    assert [member.conversation for member in pair.initiator(founder).members] == [founder, related]
    assert pair.initiator(founder).group_id == pair.initiator(related).group_id == founder


def test_a_conversation_whose_group_was_there_before_it_joins_it(pair: Pair) -> None:
    founder = identifier("founder")
    early = pair.begin("early", group=founder)
    assert pair.begin("founder") == founder
    assert [member.conversation for member in pair.initiator(early).members] == [early, founder]


def test_a_group_outlives_the_conversation_that_gave_it_its_name(pair: Pair) -> None:
    founder = pair.begin("founder")
    related = pair.begin("related", group=founder)
    finish(pair, founder)
    late = pair.begin("late", group=founder)
    assert [member.conversation for member in pair.initiator(late).members] == [related, late]
    assert pair.initiator(related).group_id == founder


def test_the_group_of_the_initiator_means_nothing_to_the_target(pair: Pair) -> None:
    one, two = pair.begin("one", group=GROUP), pair.begin("two", group=GROUP)
    assert pair.receiver(one).members == [pair.receiver(one)]
    assert pair.receiver(two).group_id == own_group(Role.TARGET, two)


def test_a_member_that_is_forgotten_leaves_its_group_and_the_last_one_ends_it(pair: Pair) -> None:
    one, two = pair.begin("one", group=GROUP), pair.begin("two", group=GROUP)
    survivor = pair.initiator(two)
    finish(pair, one)
    assert survivor.members == [survivor]
    assert survivor.group_id == GROUP
    finish(pair, two)
    assert pair.home.state.groups == {}


def test_the_end_of_a_member_leaves_the_others_alone(pair: Pair) -> None:
    one, two = pair.begin("one", group=GROUP), pair.begin("two", group=GROUP)
    for conversation in (one, two):
        pair.target.send(pair.receiver(conversation), b"answer")
    pair.target.deliver(pair.home)
    pair.end_call(one)
    assert pair.home.waiting(pair.initiator(one)) == []
    assert pair.home.waiting(pair.initiator(two)) == ["reply"]
    assert pair.home.state.unread == 1


# ---------------------------------------------------------------------------------------------------------- digest


def test_two_folds_of_one_life_have_one_digest() -> None:
    lives = [Pair(), Pair()]
    for pair in lives:
        conversation = pair.begin(messages=3, group=GROUP)
        pair.target.send(pair.receiver(conversation), b"answer")
        finish(pair, pair.begin("another"))
    assert digest_of(lives[0].home, lives[0].target) == digest_of(lives[1].home, lives[1].target)


def test_every_kind_of_state_is_in_the_digest(pair: Pair) -> None:
    conversation = pair.begin(messages=3, group=GROUP)
    state = pair.target.state
    endpoint = pair.receiver(conversation)
    (stream,) = state.streams.values()
    seen = {digest(state)}

    def differs(what: str) -> None:
        before = len(seen)
        seen.add(digest(state))
        assert len(seen) == before + 1, f"{what} is not in the digest"

    pair.target.send(endpoint, b"answer")
    differs("an output")
    stream.runs[0] = stream.runs[0]._replace(bodies=[b"another"])
    differs("the body of an output")
    for name, value in {
        "received": 9,
        "consumed": 1,
        "sent": 9,
        "committed": 4,
        "key": b"k",
        "opener": b"o",
        "urgent": ((1, "e", None, 0),),
        "clock": Clock(timer_ms=5),
        "queue": [],
    }.items():
        setattr(endpoint, name, value)
        differs(name)
    endpoint.lanes()[0].last = 77
    differs("how far a writer was received")
    writer = state.writers[pair.client.id]
    writer.next = 50
    differs("a counter")
    writer.close()
    differs("a closed writer")
    stream.acked = -1
    differs("an acknowledgement")
    state.tombstones[b"c"] = b"o"
    differs("a tombstone")
    state.named.living[Role.TARGET, identifier("c")] = False
    differs("a living conversation with an id of a caller's choice")
    state.named.over[Role.TARGET, identifier("d")] = Over(How.ENDED, 7)
    differs("one that is over")
    state.free.append(3)
    differs("a free index")
    state.statistics.gaps += 1
    differs("a statistic")
    state.ingest_to += 1
    differs("the place in the data log")


def test_names_go_with_the_last_conversation_that_has_them(pair: Pair) -> None:
    """So a partition does not keep every contract and service of its past."""
    conversation = pair.begin(contract="another")
    second, other = pair.begin("second"), pair.begin("other")
    assert len(pair.target.state.terms) == 2
    finish(pair, conversation)
    finish(pair, second)
    assert [terms.contract for terms in pair.target.state.terms.values()] == [pair.receiver(other).contract]
    finish(pair, other)
    assert (pair.home.state.terms, pair.target.state.terms) == ({}, {})
