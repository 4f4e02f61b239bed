"""Records that no honest process writes: both folds take or leave them alike, and none stops or slows an owner."""

from __future__ import annotations

import hashlib
import time
from typing import Any, Final

import pytest

from konverse.bridge.verifier.fold.endings import return_unread
from konverse.bridge.verifier.snapshots import differences
from konverse.bridge.verifier.starting_state import StartingState
from konverse.dialog.fold.snapshot import Freeze
from konverse.dialog.rules.relocation import INSTALL_PIECES_MAX
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Role, session_writer
from konverse.schemas.limits import KEY_BYTES_MAX, NAME_BYTES_MAX, WRITER_RECORDS_MAX
from konverse.schemas.wire.envelope import decode, encode_envelope
from konverse.schemas.wire.journal import FOLD_VERSION
from konverse.schemas.wire.moved import Moved, MovedMessage, decode_moved, encode_moved
from konverse.schemas.wire.operations import GiveBack
from konverse.schemas.wire.records import HEIR, End, Envelope, Forwarded, Kind, Origin, Suffix, Timer
from konverse.schemas.wire.snapshot import SnapshotEnd
from tests.kit.builders import Scribe, address_of, begin_block, identifier
from tests.kit.twice import Twice

CONVERSATION: Final = identifier("a conversation")
HOME: Final = address_of("replies")
WAITING: Final = MovedMessage("order", b"x", 0, [], Origin("old", 0, identifier("incarnation"), 1))


def session(number: int) -> Scribe:
    scribe = Scribe("a session")
    scribe.id = session_writer(number, number)
    return scribe


def moved(**changes: Any) -> Moved:
    """The state of a target that arrives."""
    old = address_of("old")
    state = Moved(
        generation=1,
        previous=old,
        first=old,
        named=False,
        state=State.CONVERSING,
        service="store",
        far_service="shop",
        contract="orders",
        peer=HOME,
        opener=identifier("client"),
        key=None,
        group=None,
        begin=None,
        received=0,
        consumed=0,
        sent=0,
        voices=[],
        waiting=[],
        urgent=[],
        finished=None,
        timer_ms=-1,
        expires_ms=-1,
        end_of_stream=None,
    )
    return state._replace(**changes)


def install(both: Twice, state: Moved, pieces: int = 1) -> None:
    """A stranger lets a target arrive, in so many pieces."""
    stranger, data = Scribe("stranger"), encode_moved(state)
    for number in range(pieces):
        piece = data[number * len(data) // pieces : (number + 1) * len(data) // pieces]
        suffix = Suffix(fragment=(number, pieces))
        both.take(stranger.write(Kind.INSTALL, both.address, CONVERSATION, role=Role.TARGET, suffix=suffix), piece)


def lives(both: Twice) -> tuple[bool, bool]:
    """Whether the target lives, by each fold."""
    known = both.first.state.endpoint(Role.TARGET, CONVERSATION)
    return known is not None, (int(Role.TARGET), CONVERSATION) in both.second.living


@pytest.fixture
def both() -> Twice:
    return Twice()


def test_a_forward_to_a_side_that_has_never_moved_is_malformed(both: Twice) -> None:
    """No side is the destination of a FORWARD before its first move. The writer inside is unknown here."""
    both.take(Scribe("client").first(both.address, CONVERSATION, begin_block(group=CONVERSATION)))
    inner = Envelope(
        Kind.MESSAGE, 0, Role.INITIATOR, both.address.tag, identifier("unknown"), CONVERSATION, 0, 1, Suffix("t")
    )
    origin = Origin("orders", 0, both.first.state.identity.incarnation, 5)
    for hop in (0, -1, WRITER_RECORDS_MAX):
        detail = Forwarded(hop, origin, 0, (), encode_envelope(inner))
        header = Scribe("stranger").write(Kind.FORWARD, both.address, CONVERSATION, suffix=Suffix(detail=detail))
        with pytest.raises(MalformedRecord):
            decode(header)
        both.take(header, b"x")
    assert both.first.state.statistics.malformed == both.second.tally["malformed"] == 3
    both.agree()


def test_heirs_never_form_a_circle(both: Twice) -> None:
    """A stranger names the heir of a writer as one whose heir is that writer."""
    one, two = session(10), session(11)
    both.first.state.recent.decides = True
    both.take(one.write(Kind.VOID, both.address, bytes(16)))
    both.take(two.write(Kind.CLOSE_WRITER, both.address, one.id, flags=HEIR))
    both.second.contents.contested = {2: None}
    both.take(one.write(Kind.CLOSE_WRITER, both.address, two.id, flags=HEIR, counter=0))
    end = End(one.id, HOME)
    both.take(Scribe("stranger").end(both.address, identifier("unknown"), end))
    both.agree()
    heirs = {writer.id: writer.heir[0] for writer in both.first.state.writers.values() if writer.heir is not None}
    assert heirs[one.id] == both.second.heirs[one.id][0] == two.id
    assert not any(heirs[two.id])


@pytest.mark.parametrize(
    "changes",
    [
        {"received": 2**62, "consumed": 2**62 - 1, "waiting": [WAITING]},
        {"received": WRITER_RECORDS_MAX},
        {"sent": 2**63 - 1},
        {"sent": -7},
        {"generation": 2**63 - 1},
        {"voices": [(identifier("w"), 2**63 - 1)]},
        {"state": -2},
        {"state": -10},
        {"state": 7},
        {"key": b"k" * (KEY_BYTES_MAX + 1)},
        {"service": "s" * (NAME_BYTES_MAX + 1)},
        {"end_of_stream": "s" * (NAME_BYTES_MAX + 1)},
        {"waiting": [WAITING._replace(type="t" * (NAME_BYTES_MAX + 1))], "received": 1},
    ],
)
def test_a_side_in_an_impossible_state_does_not_arrive(both: Twice, changes: dict[str, Any]) -> None:
    install(both, moved(**changes))
    assert lives(both) == (False, False)
    assert both.first.state.statistics.malformed == both.second.tally["malformed"] == 1
    both.agree()


def test_a_side_that_arrives_with_the_largest_numbers_can_be_used_and_saved(both: Twice) -> None:
    most = WRITER_RECORDS_MAX - 1
    state = moved(sent=most - 1, generation=most, voices=[(identifier("w"), most)])
    assert decode_moved(encode_moved(state)) == state
    install(both, state)
    endpoint = both.first.state.endpoint(Role.TARGET, CONVERSATION)
    assert endpoint is not None
    both.first.send(endpoint, b"a reply")
    assert [*Freeze(both.first.state).pieces()]
    assert both.first.outputs(HOME)[-1].envelope.sequence == most - 1


@pytest.mark.parametrize(("pieces", "arrives"), [(INSTALL_PIECES_MAX, True), (INSTALL_PIECES_MAX + 1, False)])
def test_a_state_in_too_many_pieces_does_not_arrive(both: Twice, pieces: int, *, arrives: bool) -> None:
    install(both, moved(), pieces)
    assert lives(both) == (arrives, arrives)


def test_a_side_with_many_writers_arrives_in_time_in_proportion_to_them(both: Twice) -> None:
    """One record has room for 50,000."""
    voices = [(number.to_bytes(16, "big"), number) for number in range(1, 30_001)]
    began_s = time.process_time()
    both.first.take(
        Scribe("stranger").write(
            Kind.INSTALL, both.address, CONVERSATION, role=Role.TARGET, suffix=Suffix(fragment=(0, 1))
        ),
        encode_moved(moved(voices=voices)),
    )
    endpoint = both.first.state.endpoint(Role.TARGET, CONVERSATION)
    assert endpoint is not None
    assert [(lane.writer.id, lane.last) for lane in endpoint.lanes()] == voices
    assert time.process_time() - began_s < 5


def test_a_timer_may_name_no_longer_message_type_than_a_record_can_carry(both: Twice) -> None:
    timer = Timer(1_000, "e" * (NAME_BYTES_MAX + 1))
    header = session(10).write(Kind.SET_TIMER, both.address, CONVERSATION, suffix=Suffix(detail=timer))
    both.take(header)
    assert both.first.state.statistics.malformed == both.second.tally["malformed"] == 1


def test_a_closed_without_its_detail_is_malformed(both: Twice) -> None:
    both.take(Scribe("stranger").write(Kind.CLOSED, both.address, CONVERSATION))
    assert both.first.state.statistics.malformed == both.second.tally["malformed"] == 1


def test_an_end_names_as_many_writers_as_a_header_has_room_for(both: Twice) -> None:
    """More may speak on a conversation that pools or several processes share (M51)."""
    both.take(Scribe("client").first(both.address, CONVERSATION, begin_block(group=CONVERSATION)))
    for number in range(200):
        both.take(Scribe(f"writer {number}").message(both.address, CONVERSATION), b"x")
    endpoint = both.first.state.endpoint(Role.TARGET, CONVERSATION)
    assert endpoint is not None
    both.first.end(endpoint)
    both.second.end(both.second.living[int(Role.TARGET), CONVERSATION], failed=False)
    both.agree()


def test_messages_that_a_router_has_given_back_stand_in_the_statistics_of_both_folds(both: Twice) -> None:
    """A snapshot holds the statistics. The verifier compares them if it has read the logs from their beginning."""
    both.take(Scribe("client").first(both.address, CONVERSATION, begin_block(group=CONVERSATION)), b"0")
    endpoint = both.first.state.endpoint(Role.TARGET, CONVERSATION)
    assert endpoint is not None
    operation = GiveBack(endpoint.index, "redirect", b"note")
    both.first.commit(rare=[operation])
    return_unread(both.second, operation)
    both.agree()
    both.second.ingested_to = 1
    data = b"".join(Freeze(both.first.state).pieces())
    identity, digest = both.first.state.identity, hashlib.sha256(data).digest()
    ids = identity.incarnation, identity.data_topic_id, identity.journal_topic_id
    end = SnapshotEnd(
        *(bytes(16), FOLD_VERSION, *ids, 0, b"", 0, bytes(32), -1, 5, 0), True, 1, 1, len(data), digest
    )  # fmt: skip
    assert both.first.state.statistics.bounced == 2
    assert [*differences(StartingState(end, data), both.second, is_whole=True)] == []
