"""A client's transaction becomes outputs of the transmission partition, whole or not at all (protocol.md section 5)."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.dialog.state.transitions import State
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import KEY_BYTES_MAX, NAME_BYTES_MAX, TOPIC_NAME_LENGTH_MAX
from konverse.schemas.wire.client_transaction import TransactionDialog, TransactionRecord, TransactionStep, encode
from konverse.schemas.wire.records import FIRST, PARTITION_MAX, RETURNING, BounceReason, Kind, Opened, Suffix
from tests.kit.builders import Pair, Side, begin_block, identifier

CONVERSATION = identifier("a conversation")
BLOCK = begin_block(group=CONVERSATION)
WHOLE = [
    TransactionStep(0, Kind.BEGIN),
    TransactionStep(0, Kind.MESSAGE, 0, "order", b"first"),
    TransactionStep(0, Kind.MESSAGE, 1, "order", b"second"),
    TransactionStep(0, Kind.FIN),
    TransactionStep(0, Kind.END_CALL),
]


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.fixture
def transmission() -> Side:
    return Side("transmission")


def written(pair: Pair, transmission: Side, steps: list[TransactionStep], body: bytes | None = None) -> None:
    """A session's transaction arrives."""
    data = encode(TransactionRecord([TransactionDialog(CONVERSATION, BLOCK)], steps)) if body is None else body
    suffix = Suffix(home=pair.home.address)
    header = pair.client.write(Kind.TRANSACTION, transmission.address, CONVERSATION, suffix=suffix)
    transmission.take(header, data)


def test_the_steps_become_outputs_in_the_order_of_the_calls(pair: Pair, transmission: Side) -> None:
    written(pair, transmission, WHOLE)
    home, target = transmission.outputs(pair.home.address), transmission.outputs(pair.target.address)
    assert [one.kind for one in home] == [Kind.BEGIN, Kind.END_CALL]
    assert [(one.kind, one.body, one.envelope.flags) for one in target] == [
        (Kind.MESSAGE, b"first", FIRST),
        (Kind.MESSAGE, b"second", 0),
        (Kind.FIN, None, 0),
    ]
    assert {one.envelope.suffix.origin for one in (*home, *target)} == {pair.client.id}
    assert {one.key for one in (*home, *target)} == {CONVERSATION}
    assert [one.envelope.sequence for one in target] == [0, 1, -1]


def test_the_messages_of_a_returning_dialog_return_and_its_other_steps_are_as_ever(
    pair: Pair, transmission: Side
) -> None:
    dialog = TransactionDialog(CONVERSATION, BLOCK, returning=True)
    written(pair, transmission, [], encode(TransactionRecord([dialog], WHOLE)))
    assert [one.envelope.flags for one in transmission.outputs(pair.home.address)] == [0, 0]
    assert [one.envelope.flags for one in transmission.outputs(pair.target.address)] == [
        FIRST | RETURNING,
        RETURNING,
        0,
    ]


def test_first_leaves_after_begin_and_end_leaves_after_the_messages(pair: Pair, transmission: Side) -> None:
    written(pair, transmission, WHOLE)
    home = transmission.state.streams[pair.home.address]
    target = transmission.state.streams[pair.target.address]
    assert (home.open_to, target.open_to) == (1, 0)
    transmission.commit(output_acks=[(pair.home.address, 1)])
    assert (home.open_to, target.open_to) == (1, 3)
    transmission.commit(output_acks=[(pair.target.address, 3)])
    assert (home.open_to, target.open_to) == (2, 3)


def test_a_conversation_that_was_begun_before_keeps_its_opener(pair: Pair, transmission: Side) -> None:
    written(pair, transmission, [TransactionStep(0, Kind.OPEN, body=identifier("before")), *WHOLE[1:3]])
    first, second = transmission.outputs(pair.target.address)
    assert first.envelope.suffix.detail == Opened(identifier("before"))
    assert second.envelope.suffix.detail is None
    transmission.deliver(pair.target)
    assert pair.receiver(CONVERSATION).opener == identifier("before")


@pytest.mark.parametrize("opener", [None, b"", b"short", bytes(17)])
def test_a_transaction_that_opens_a_dialog_without_a_valid_opener_is_malformed(
    pair: Pair, transmission: Side, opener: bytes | None
) -> None:
    written(pair, transmission, [TransactionStep(0, Kind.OPEN, body=opener), *WHOLE[1:3]])
    assert transmission.state.statistics.malformed == 1
    assert not transmission.state.streams


def test_the_session_is_the_opener_of_a_conversation_sent_by_the_transmission_partition(
    pair: Pair, transmission: Side
) -> None:
    written(pair, transmission, WHOLE)
    transmission.deliver(pair.home)
    transmission.deliver(pair.target)
    assert pair.receiver(CONVERSATION).opener == pair.client.id
    assert len(pair.receiver(CONVERSATION).queue) == 2
    pair.home.deliver(pair.target)
    assert pair.receiver(CONVERSATION).state is State.DISCONNECTED_INBOUND


def test_a_first_for_a_session_that_is_closed_comes_back(pair: Pair, transmission: Side) -> None:
    written(pair, transmission, WHOLE[:2])
    pair.target.take(pair.client.close(pair.target.address, pair.client.id))
    transmission.deliver(pair.target)
    assert pair.target.state.live() == []
    (back,) = pair.target.outputs(pair.home.address)
    assert (back.kind, back.detail.reason) == (Kind.BOUNCE, BounceReason.WRITER_CLOSED)
    assert (back.detail.writer, back.envelope.suffix.origin) == (transmission.state.writer_id, pair.client.id)


def test_a_transaction_of_a_closed_writer_comes_back_whole(pair: Pair, transmission: Side) -> None:
    transmission.take(pair.client.close(transmission.address, pair.client.id))
    written(pair, transmission, WHOLE)
    assert transmission.outputs(pair.target.address) == []
    (back,) = transmission.outputs(pair.home.address)
    assert (back.kind, back.detail.reason) == (Kind.BOUNCE, BounceReason.WRITER_CLOSED)
    assert back.body == encode(TransactionRecord([TransactionDialog(CONVERSATION, BLOCK)], WHOLE))


@pytest.mark.parametrize(
    "steps",
    [
        [TransactionStep(0, Kind.BEGIN), TransactionStep(1, Kind.MESSAGE, 0, "order", b"")],
        [TransactionStep(0, Kind.BEGIN), TransactionStep(0, Kind.MESSAGE, 0, "o" * 5_000, b"")],
        [TransactionStep(0, Kind.BEGIN), TransactionStep(0, Kind.MESSAGE, -2, "order", b"")],
    ],
    ids=["a dialog that is not named", "a header that is too long", "an absurd number"],
)
def test_of_a_transaction_that_cannot_be_sent_nothing_is(
    pair: Pair, transmission: Side, steps: list[TransactionStep]
) -> None:
    written(pair, transmission, steps)
    assert transmission.state.statistics.malformed == 1
    assert transmission.state.streams == {}
    assert transmission.state.writers[pair.client.id].next == 1, "its counter is used up"


def test_garbage_is_no_transaction(pair: Pair, transmission: Side) -> None:
    written(pair, transmission, [], b"\x07 no transaction")
    assert transmission.state.statistics.malformed == 1


@pytest.mark.parametrize(
    ("changes", "message_type", "sequence"),
    [
        ({"target": Address("orders", 2**40, b"tag!")}, "order", 0),
        ({"home": Address("orders", 2**31, b"tag!")}, "order", 0),
        ({"target": Address("no topic", 0, b"tag!")}, "order", 0),
        ({"from_service": "s" * (NAME_BYTES_MAX + 1)}, "order", 0),
        ({"key": bytes(KEY_BYTES_MAX + 1)}, "order", 0),
        ({}, "o" * (NAME_BYTES_MAX + 1), 0),
        ({}, "o" * (NAME_BYTES_MAX + 1), 1),
    ],
)
def test_of_a_transaction_that_no_honest_client_writes_nothing_is_sent(
    pair: Pair, transmission: Side, changes: dict[str, Any], message_type: str, sequence: int
) -> None:
    """Not even the steps before the wrong one: an output to an impossible address would stop all others."""
    dialog = TransactionDialog(CONVERSATION, BLOCK._replace(**changes))
    steps = [TransactionStep(0, Kind.MESSAGE, sequence, message_type, b"")]
    written(
        pair,
        transmission,
        [],
        encode(TransactionRecord([dialog], [TransactionStep(0, Kind.MESSAGE, 1, "order"), *steps])),
    )
    assert transmission.state.statistics.malformed == 1
    assert transmission.state.streams == {}


def test_names_and_places_up_to_their_bounds_are_sent(pair: Pair, transmission: Side) -> None:
    block = BLOCK._replace(
        home=Address("a" * TOPIC_NAME_LENGTH_MAX, PARTITION_MAX, b"tag!"), from_service="s" * NAME_BYTES_MAX
    )
    steps = [TransactionStep(0, Kind.BEGIN), TransactionStep(0, Kind.MESSAGE, 0, "o" * NAME_BYTES_MAX, b"")]
    written(pair, transmission, [], encode(TransactionRecord([TransactionDialog(CONVERSATION, block)], steps)))
    assert transmission.state.statistics.malformed == 0
    assert transmission.state.streams.keys() == {block.home, block.target}
