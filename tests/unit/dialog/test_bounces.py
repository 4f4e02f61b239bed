"""Mailboxes: bounced messages are kept, confirmed, or redirected, once (protocol.md section 3)."""

from __future__ import annotations

import pytest

from konverse.dialog.fold.snapshot import Freeze, restore
from konverse.dialog.state.mailbox import Bounced, Mailbox
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import BODY_BYTES_MAX, MAILBOX_BYTES_MAX, MAILBOX_ENTRIES_MAX
from konverse.schemas.wire.records import (
    FIRST,
    HEIR,
    NO_SEQUENCE,
    RETURNING,
    Begin,
    Bounce,
    BounceId,
    BounceReason,
    Kind,
    Opened,
    Suffix,
)
from tests.kit.builders import Pair, Scribe, address_of, begin_block, identifier
from tests.kit.digests import digest
from tests.kit.moving import World, move


@pytest.fixture
def pair() -> Pair:
    return Pair()


def come_back(pair: Pair, *bodies: bytes, conversation: str = "unknown") -> list[BounceId]:
    """Messages without a receiver bounce into the mailbox of their home."""
    for number, body in enumerate(bodies):
        pair.send(identifier(conversation), body, sequence=number)
    pair.target.deliver(pair.home)
    return [*pair.home.state.mailbox.entries][-len(bodies) :]


def ask(
    pair: Pair,
    kind: Kind,
    bounce: BounceId,
    to: bytes = b"c" * 16,
    *,
    by: Scribe | None = None,
    begin: Begin | None = None,
) -> None:
    """CONFIRM or REDIRECT of a session arrives at home."""
    suffix = Suffix(begin=begin, detail=bounce)
    flags = FIRST if begin is not None else 0
    pair.home.take((by or pair.client).write(kind, pair.home.address, to, suffix=suffix, flags=flags))


def fresh(pair: Pair, name: str = "a new one") -> tuple[bytes, Begin]:
    """A dialog whose BEGIN is at home, without messages."""
    conversation = pair.begin(name, messages=0)
    return conversation, begin_block(group=conversation)


def test_a_bounce_is_kept_with_all_that_sends_it_again(pair: Pair) -> None:
    (name,) = come_back(pair, b"body")
    assert pair.home.state.mailbox.entries == {
        name: Bounced(
            pair.client.id,
            Bounce(pair.client.id, 0, pair.target.address, BounceReason.NO_ENDPOINT),
            identifier("unknown"),
            0,
            "order",
            b"body",
        )
    }


def test_a_bounce_keeps_the_key_of_its_conversation_which_may_be_over_later(pair: Pair) -> None:
    conversation = pair.begin(key=b"customer 7")
    pair.target.end(pair.receiver(conversation))
    pair.send(conversation, b"late", sequence=1, flags=RETURNING)
    pair.target.deliver(pair.home)
    (bounced,) = pair.home.state.mailbox.entries.values()
    assert (bounced.body, bounced.key) == (b"late", b"customer 7")
    again = Partition(pair.home.state.identity)
    restore(again, b"".join(Freeze(pair.home.state).pieces()))
    assert again.mailbox.entries == pair.home.state.mailbox.entries


def test_a_confirmed_bounce_is_gone(pair: Pair) -> None:
    first, second = come_back(pair, b"0", b"1")
    ask(pair, Kind.CONFIRM, first)
    assert [*pair.home.state.mailbox.entries] == [second]
    assert not pair.home.outputs(pair.target.address)


def test_a_redirected_message_is_received_on_the_new_dialog_and_no_longer_in_the_mailbox(pair: Pair) -> None:
    names = come_back(pair, b"0", b"1")
    conversation = pair.begin("a new one")
    for name in names:
        ask(pair, Kind.REDIRECT, name, conversation)
    assert len(pair.home.state.mailbox) == 0
    assert pair.initiator(conversation).state is State.CONVERSING
    pair.home.deliver(pair.target)
    assert [entry[2] for entry in pair.receiver(conversation).queue] == [b"0", b"0", b"1"]


def test_a_bounce_is_redirected_once_despite_repeated_requests(pair: Pair) -> None:
    (name,) = come_back(pair, b"0")
    conversation, other = pair.begin("a new one"), pair.begin("another")
    for to in (conversation, conversation, other):
        ask(pair, Kind.REDIRECT, name, to)
    ask(pair, Kind.CONFIRM, name)
    assert [sent.envelope.conversation for sent in pair.home.outputs(pair.target.address)] == [conversation]


@pytest.mark.parametrize("flags", [0, RETURNING])
def test_a_redirected_message_keeps_the_returning_flag(pair: Pair, flags: int) -> None:
    (name,) = come_back(pair, b"0")
    conversation = pair.begin("a new one")
    suffix = Suffix(detail=name)
    pair.home.take(pair.client.write(Kind.REDIRECT, pair.home.address, conversation, suffix=suffix, flags=flags))
    (sent,) = pair.home.outputs(pair.target.address)
    assert sent.envelope.flags == flags


def test_an_unknown_bounce_changes_nothing(pair: Pair) -> None:
    conversation = pair.begin()
    ask(pair, Kind.REDIRECT, BounceId(pair.client.id, 7, pair.target.address), conversation)
    pair.home.take(pair.client.write(Kind.REDIRECT, pair.home.address, conversation))
    assert not pair.home.outputs(pair.target.address)


def test_only_its_session_decides_about_a_bounce_until_that_is_closed(pair: Pair) -> None:
    first, second = come_back(pair, b"0", b"1")
    conversation, successor = pair.begin("a new one"), Scribe("successor")
    ask(pair, Kind.CONFIRM, first, by=successor)
    ask(pair, Kind.REDIRECT, second, conversation, by=successor)
    assert len(pair.home.state.mailbox) == 2
    pair.home.take(successor.close(pair.home.address, pair.client.id))
    ask(pair, Kind.CONFIRM, first, by=successor)
    ask(pair, Kind.REDIRECT, second, conversation, by=successor)
    assert len(pair.home.state.mailbox) == 0
    assert [sent.body for sent in pair.home.outputs(pair.target.address)] == [b"1"]


def test_a_closed_session_decides_nothing(pair: Pair) -> None:
    (name,) = come_back(pair, b"0")
    pair.home.take(Scribe("successor").close(pair.home.address, pair.client.id))
    ask(pair, Kind.CONFIRM, name)
    assert len(pair.home.state.mailbox) == 1


@pytest.mark.parametrize("back", [False, True])
def test_a_bounce_stays_when_the_new_dialog_has_moved(back: bool) -> None:
    world = World()
    (name,) = come_back(world, b"0")
    conversation = world.begin("a new one")
    after = move(world, world.home, world.initiator(conversation), world.second)
    if back:
        after = move(world, world.second, after, world.home)
    ask(world, Kind.REDIRECT, name, conversation)
    assert [*world.home.state.mailbox.entries] == [name]
    assert not world.home.outputs(world.target.address)


@pytest.mark.parametrize("how", ["unknown", "ended", "peer ended"])
def test_a_bounce_stays_when_the_new_dialog_talks_no_more(pair: Pair, how: str) -> None:
    (name,) = come_back(pair, b"0")
    conversation = identifier("nobody")
    if how != "unknown":
        conversation = pair.begin("a new one")
    if how == "ended":
        pair.end_call(conversation)
    elif how == "peer ended":
        pair.target.end(pair.receiver(conversation))
        pair.target.deliver(pair.home)
    ask(pair, Kind.REDIRECT, name, conversation)
    assert [*pair.home.state.mailbox.entries] == [name]


# -------------------------------------------------------------------------------------------------------------- FIRST


def test_a_redirected_message_opens_a_conversation_on_which_nothing_was_sent(pair: Pair) -> None:
    names = come_back(pair, b"0", b"1")
    conversation, begin = fresh(pair)
    for name in names:
        ask(pair, Kind.REDIRECT, name, conversation, begin=begin)
    sent = pair.home.deliver(pair.target)
    assert [(one.envelope.flags, one.envelope.suffix.begin) for one in sent] == [(FIRST, begin), (0, None)]
    assert [entry[2] for entry in pair.receiver(conversation).queue] == [b"0", b"1"]


def test_the_session_that_redirects_is_the_opener_that_end_names(pair: Pair) -> None:
    (name,) = come_back(pair, b"0")
    conversation, begin = fresh(pair)
    ask(pair, Kind.REDIRECT, name, conversation, begin=begin)
    pair.end_call(conversation)
    end = pair.home.deliver(pair.target)[-1]
    assert end.detail.opener == pair.client.id == pair.receiver(conversation).opener


def test_a_conversation_that_another_session_opens_is_not_opened_by_a_redirect(pair: Pair) -> None:
    (name,) = come_back(pair, b"0")
    conversation = pair.begin("a new one", messages=0)
    other = Scribe("another session")
    pair.home.take(other.close(pair.home.address, pair.client.id))
    ask(pair, Kind.REDIRECT, name, conversation, by=other, begin=begin_block(group=conversation))
    (sent,) = pair.home.outputs(pair.target.address)
    assert sent.envelope.flags == 0
    assert pair.initiator(conversation).opener == pair.client.id


# ------------------------------------------------------------------------------------------------------ back once more


def test_a_redirect_by_an_heir_opens_the_conversation_and_names_the_original_opener(pair: Pair) -> None:
    (name,) = come_back(pair, b"0")
    conversation, block = fresh(pair)
    heir = Scribe("the same session")
    pair.home.take(heir.write(Kind.CLOSE_WRITER, pair.home.address, pair.client.id, flags=HEIR))
    ask(pair, Kind.REDIRECT, name, conversation, by=heir, begin=block)
    (sent,) = pair.home.deliver(pair.target)
    assert (sent.envelope.flags, sent.envelope.suffix.origin, sent.detail) == (FIRST, heir.id, Opened(pair.client.id))
    assert pair.receiver(conversation).opener == pair.client.id


def test_a_redirected_message_comes_back_to_its_session_and_can_be_redirected_again(pair: Pair) -> None:
    (name,) = come_back(pair, b"0")
    refused, conversation = pair.begin("refused", messages=0), pair.begin("a new one")
    ask(pair, Kind.REDIRECT, name, refused)
    pair.home.deliver(pair.target)
    pair.target.deliver(pair.home)
    (bounced,) = pair.home.state.mailbox.entries.values()
    assert (bounced.session, bounced.bounce.writer) == (pair.client.id, pair.home.state.writer_id)
    assert (bounced.sequence, bounced.body) == (NO_SEQUENCE, b"0")
    ask(pair, Kind.REDIRECT, bounced.id, conversation)
    assert pair.home.deliver(pair.target)[-1].envelope.suffix.origin == pair.client.id
    assert pair.receiver(conversation).received == 2


def test_a_counter_of_the_session_and_the_same_one_of_its_home_are_two_bounces(pair: Pair) -> None:
    (name,) = come_back(pair, b"0")
    ask(pair, Kind.REDIRECT, name, pair.begin("refused", messages=0))
    pair.home.deliver(pair.target)
    come_back(pair, b"1", conversation="another")
    bounces = [bounced.bounce for bounced in pair.home.state.mailbox.entries.values()]
    assert [(bounce.writer == pair.client.id, bounce.counter) for bounce in bounces] == [(False, 0), (True, 1)]
    detail = Bounce(pair.client.id, 0, pair.target.address, BounceReason.ENDED)
    pair.home.take(pair.client.bounce(pair.home.address, identifier("c"), detail))
    assert len(pair.home.state.mailbox) == 3


# ------------------------------------------------------------------------------------------------- bounds, snapshots


def bounced(number: int, body: bytes = b"", reason: BounceReason = BounceReason.ENDED) -> Bounced:
    return Bounced(b"s" * 16, Bounce(b"w" * 16, number, address_of(), reason), b"c" * 16, 0, "order", body)


def note(number: int) -> Bounced:
    """The message that a redirecting router puts in front of the returned ones."""
    return bounced(number, reason=BounceReason.REDIRECTED)


def test_a_mailbox_is_bounded_in_messages_and_bytes_and_the_oldest_goes_first() -> None:
    mailbox = Mailbox()
    gone = sum(mailbox.keep(bounced(number)) for number in range(MAILBOX_ENTRIES_MAX + 2))
    assert (gone, len(mailbox), next(iter(mailbox.entries)).counter) == (2, MAILBOX_ENTRIES_MAX, 2)
    mailbox = Mailbox()
    body = bytes(BODY_BYTES_MAX)
    room = MAILBOX_BYTES_MAX // BODY_BYTES_MAX
    gone = sum(mailbox.keep(bounced(number, body)) for number in range(room + 1))
    assert (gone, len(mailbox)) == (1, room)
    mailbox.take(bounced(1).id)
    assert mailbox.keep(bounced(room + 1, body)) == 0, "what was taken out makes room"


def test_a_full_mailbox_drops_redirect_notes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konverse.dialog.state.mailbox.MAILBOX_ENTRIES_MAX", 3)
    mailbox = Mailbox()
    came = [note(0), bounced(1), note(2), bounced(3), bounced(4)]
    assert [mailbox.keep(one) for one in came] == [0, 0, 0, 1, 1]
    assert [key.counter for key in mailbox.entries] == [0, 2, 4]
    assert [mailbox.keep(note(5)), mailbox.keep(note(6))] == [1, 1]
    assert [key.counter for key in mailbox.entries] == [2, 5, 6]


def test_messages_dropped_from_a_full_mailbox_are_counted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("konverse.dialog.state.mailbox.MAILBOX_ENTRIES_MAX", 2)
    names = come_back(pair, b"0", b"1", b"2")
    assert [*pair.home.state.mailbox.entries] == names[-2:]
    assert pair.home.state.statistics.undeliverable == 1


def test_a_duplicate_bounce_does_not_replace_the_first_one() -> None:
    mailbox = Mailbox()
    assert mailbox.keep(bounced(1, b"first")) == mailbox.keep(bounced(1, b"second")) == 0
    assert [kept.body for kept in mailbox.entries.values()] == [b"first"]


def test_a_snapshot_holds_the_mailbox(pair: Pair) -> None:
    come_back(pair, b"0", b"", b"2")
    state = pair.home.state
    again = Partition(state.identity)
    restore(again, b"".join(Freeze(state).pieces()))
    assert digest(again) == digest(state)
    assert [*again.mailbox.entries.items()] == [*state.mailbox.entries.items()]
    state.mailbox.take(next(iter(state.mailbox.entries)))
    assert digest(again) != digest(state)


# ------------------------------------------------------------------------------------------------------------ NO_PEER


def orphan(pair: Pair) -> bytes:
    """A target without an initiator: FIRST came and no BEGIN."""
    conversation = identifier("an orphan")
    pair.target.take(pair.client.first(pair.target.address, conversation, begin_block(group=conversation)))
    return conversation


def test_a_target_without_a_peer_gets_error_8462_behaviour_121(pair: Pair) -> None:
    conversation = orphan(pair)
    pair.target.send(pair.receiver(conversation), b"is anybody there")
    pair.target.deliver(pair.home)
    assert pair.home.state.statistics.strays == 1
    (answer,) = pair.home.deliver(pair.target)
    assert (answer.kind, answer.envelope.role) == (Kind.NO_PEER, Role.INITIATOR)
    target = pair.receiver(conversation)
    assert target.state is State.ERROR
    assert target.error is not None
    assert b"<Code>-8462</Code>" in (target.error[2] or b"")


def test_the_end_of_a_target_without_a_peer_is_answered_too_and_the_target_forgotten(pair: Pair) -> None:
    conversation = orphan(pair)
    pair.target.end(pair.receiver(conversation))
    pair.target.deliver(pair.home)
    assert [sent.kind for sent in pair.home.deliver(pair.target)] == [Kind.NO_PEER]
    assert pair.target.state.live() == []


def test_no_peer_is_never_answered(pair: Pair) -> None:
    conversation = orphan(pair)
    for _ in range(2):
        pair.target.send(pair.receiver(conversation), b"hello")
    pair.target.deliver(pair.home)
    assert len(pair.home.deliver(pair.target)) == 2
    assert not pair.target.outputs(pair.home.address)
    pair.target.end(pair.receiver(conversation))
    assert pair.target.state.live() == []
    pair.target.deliver(pair.home)
    pair.home.deliver(pair.target)
    assert pair.target.state.statistics.undeliverable == 2
    assert not pair.target.outputs(pair.home.address)


def test_a_target_that_names_no_place_is_counted_and_not_answered(pair: Pair) -> None:
    pair.home.take(Scribe("an old owner").message(pair.home.address, identifier("c"), role=Role.TARGET, sequence=0))
    assert (pair.home.state.statistics.strays, pair.home.state.statistics.undeliverable) == (1, 1)
    assert pair.home.state.streams == {}


def test_records_of_a_target_name_its_partition_and_records_of_an_initiator_do_not(pair: Pair) -> None:
    conversation = pair.begin()
    pair.target.send(pair.receiver(conversation), b"reply")
    pair.target.deliver(pair.home)
    pair.home.send(pair.initiator(conversation), b"again")
    pair.target.end(pair.receiver(conversation))
    (again,) = pair.home.outputs(pair.target.address)
    (end,) = pair.target.outputs(pair.home.address)
    assert again.envelope.suffix.home is None
    assert end.envelope.suffix.home == pair.target.address
