"""A hand-written journal with everything that the simulator never does, and every field of a record."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from konverse.dialog.fold.journal import JournalRecord
from konverse.schemas.identifiers import Role
from konverse.schemas.system_messages import Rejection, error_body
from konverse.schemas.wire.journal import (
    FOLD_VERSION,
    GENESIS_HASH,
    SYSTEM_BITS,
    TOOK_ERROR,
    Claim,
    Commit,
    CommitOperations,
    EndOperation,
    Part,
    encode_claim,
    encode_commit,
    encode_part,
)
from konverse.schemas.wire.records import FIRST, NAMED, Bounce, BounceReason, End, Kind, Suffix
from tests.kit.builders import GARBAGE, GROUP, Scribe, address_of, begin_block, identifier, log_of

from .case import Case, DataRecord

HERE: Final = address_of()
THERE: Final = address_of("replies")
TIME_MS: Final = 1_700_000_000_000


class Chronicle:
    """The growing logs of the partition `orders/0`. Every second data offset is a hole, as markers leave it."""

    def __init__(self) -> None:
        self.journal: list[JournalRecord] = []
        self.data: list[DataRecord] = []
        self.client = Scribe("client")
        self.peer = Scribe("the owner of replies/0")
        self._epoch = self._number = 0
        self._owner = b""
        self._hash = GENESIS_HASH

    def arrive(self, header: bytes | None, body: bytes | None = None, headers: Any = ()) -> None:
        """Append a record for this partition."""
        offset = 2 * len(self.data)
        self.data.append(DataRecord(offset, header, body, TIME_MS + 10 * offset, tuple(headers)))

    def append(self, data: bytes) -> None:
        """Append a journal record. The broker's clock sometimes goes back."""
        offset = len(self.journal)
        self.journal.append(JournalRecord(offset, data, TIME_MS + 1_000 * offset - 1_500 * (offset % 3 == 0)))

    def claim(self, owner: str, *, clean: bool = False) -> None:
        """Append the CLAIM of the next owner."""
        identity = log_of()
        self._epoch, self._owner = self._epoch + 1, identifier(owner)
        ids = (identity.incarnation, identity.data_topic_id, identity.journal_topic_id)
        self.append(encode_claim(Claim(self._epoch, self._owner, FOLD_VERSION, *ids, clean)))

    def commit(self, parts: int = 1, **columns: Any) -> bytes:
        """Append a COMMIT that ingests everything, in `parts` parts. Returns its bytes."""
        others = {
            key: columns.pop(key) for key in ("output_acks", "release", "rejected", "contested") if key in columns
        }
        number = self._number + 1
        position = 2 * len(self.data)
        commit = Commit(self._epoch, self._owner, number, self._hash, position, CommitOperations(**columns), **others)
        data = encode_commit(commit)
        size = -(-len(data) // parts)
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        for at, piece in enumerate(pieces):
            self.append(piece if parts == 1 else encode_part(Part(self._owner, number, at, len(pieces), piece)))
        self._number, self._hash = number, hashlib.sha256(data).digest()
        return data

    def place_of(self, conversation: bytes, role: Role = Role.TARGET) -> int:
        """The index of a conversation's endpoint, from a fold."""
        case = self.case()
        fold = case.fold()
        fold.feed_journal(case.journal)
        assert fold.advance() is None
        endpoint = fold.state.endpoint(role, conversation)
        assert endpoint is not None, "the journal has not ingested it yet"
        return endpoint.index

    def case(self) -> Case:
        """The case with the logs so far."""
        return Case("by hand", log_of(), [*self.journal], [*self.data], 2 * len(self.data), [], [], {})


def by_hand() -> Case:
    """A partition's history with something of every kind, up to a moment with work left."""
    chronicle = Chronicle()
    _sessions(chronicle)
    _own_conversations(chronicle)
    _begun_again(chronicle)
    _strangers(chronicle)
    _takeover(chronicle)
    _what_waits(chronicle)
    return chronicle.case()


def _sessions(c: Chronicle) -> None:
    """Conversations begun by a session: answered, ended, ended with an error; commits in parts."""
    one, two, three = map(identifier, ("one", "two", "three"))
    c.claim("first owner")
    c.arrive(c.client.first(HERE, one, begin_block(group=one, key=b"a key")), b"0", [("trace", b"\x00\xff")])
    for sequence in range(1, 4):
        c.arrive(c.client.message(HERE, one, sequence=sequence), str(sequence).encode())
    c.commit()
    place = c.place_of(one)
    bodies = [b"a" * 100, b"", b"b" * 300]
    c.commit(
        parts=3,
        receive_endpoints=[place],
        receive_positions=[2 << SYSTEM_BITS],
        sends=[(place, "reply", bodies), (place, "other", [b"c"])],
        output_acks=[(THERE, 0)],
    )
    for name in (two, three):
        c.arrive(c.client.first(HERE, name, begin_block(group=name)), b"first")
    c.commit(rejected=[(0, Rejection(9615, "no element found: line 1, column 0"))])
    c.commit(
        output_acks=[(THERE, 3)],
        ends=[EndOperation(c.place_of(two)), EndOperation(c.place_of(three), 7, "too much \N{HOT BEVERAGE}")],
    )
    c.arrive(c.client.message(HERE, two), b"nobody reads it")
    c.arrive(c.peer.end(HERE, three, End(c.client.id, THERE)))
    c.commit()


def _own_conversations(c: Chronicle) -> None:
    """Conversations that begin here: by a session, in a group, by a commit."""
    ours, unused, asked, asked_too = map(identifier, ("ours", "unused", "asked", "asked too"))
    block = begin_block(home="orders", target="replies", group=GROUP, lifetime_ms=60_000, broker_instance="elsewhere")
    for conversation in (asked, asked_too):
        c.arrive(c.client.begin(conversation, block))
    c.commit(begins=[(ours, block._replace(group=ours)), (unused, block._replace(group=unused, key=b"k"))])
    place = c.place_of(ours, Role.INITIATOR)
    c.commit(sends=[(place, "order", [b"0", b"1"])], ends=[])
    for sequence in range(2):
        c.arrive(c.peer.message(HERE, ours, role=Role.TARGET, sequence=sequence), b"reply")
    c.arrive(c.peer.message(HERE, asked, role=Role.TARGET, sequence=0), b"reply")
    c.arrive(c.client.write(Kind.END_CALL, HERE, asked_too), error_body(9, "given up"))
    c.arrive(c.client.write(Kind.END_CALL, HERE, asked_too))
    c.arrive(
        c.peer.end(HERE, ours, End(c.peer.id, HERE, ((c.client.id, 1),)), Kind.ERROR, role=Role.TARGET), b"<Error/>"
    )
    c.commit()
    c.commit(receive_endpoints=[place], receive_positions=[1 << SYSTEM_BITS | TOOK_ERROR])
    c.commit(ends=[EndOperation(place)])


def _begun_again(c: Chronicle) -> None:
    """Two sessions begin one id, and it is begun again when it is over; a target's third reply finds an initiator."""
    order, late = identifier("an order"), Scribe("late")
    c.arrive(c.client.first(HERE, order, begin_block(group=order), flags=FIRST | NAMED), b"first")
    c.arrive(Scribe("too").first(HERE, order, begin_block(group=order), flags=FIRST | NAMED), b"as well")
    c.commit()
    c.commit(ends=[EndOperation(c.place_of(order))])
    c.arrive(c.peer.end(HERE, order, End(c.client.id, THERE)))
    c.arrive(late.first(HERE, order, begin_block(group=order), flags=FIRST | NAMED), b"late")
    never, block = identifier("never began"), begin_block(home="orders", target="replies")
    c.arrive(c.client.write(Kind.BEGIN, HERE, never, flags=NAMED, suffix=Suffix(begin=block)))
    c.arrive(c.peer.message(HERE, never, role=Role.TARGET, sequence=2), b"the third reply")
    c.arrive(c.peer.end(HERE, never, End(late.id, HERE), role=Role.TARGET, sequence=3))
    c.commit()


def _strangers(c: Chronicle) -> None:
    """Ends and messages without an endpoint, closed writers, and malformed records."""
    never, late, lost = map(identifier, ("never", "late", "lost"))
    opener = Scribe("another client")
    for conversation in (never, late):
        c.arrive(c.peer.end(HERE, conversation, End(opener.id, THERE)))
    too_late = opener.first(HERE, late, begin_block(group=late))
    c.arrive(too_late, b"too late")
    c.arrive(opener.message(HERE, lost, suffix=Suffix("order", home=THERE, origin=identifier("origin"))), b"lost")
    c.arrive(c.peer.bounce(HERE, lost, Bounce(c.client.id, 7, THERE, BounceReason.ENDED)), b"comes back")
    closed = Scribe("a closed client")
    c.arrive(c.peer.close(HERE, closed.id))
    c.arrive(closed.message(HERE, lost), b"of a closed writer")
    c.arrive(closed.begin(identifier("refused"), begin_block(home="orders", target="replies")))
    for header in (None, GARBAGE, opener.message(address_of("another queue"), lost)):
        c.arrive(header, b"nothing")
    c.arrive(too_late, b"too late")
    c.arrive(opener.message(HERE, lost, counter=99), b"a gap")
    c.commit()


def _takeover(c: Chronicle) -> None:
    """A release, a successor, and late records of the previous owner, all void."""
    old = c.commit(release=True)
    c.claim("second owner", clean=True)
    c.append(old)
    identity = log_of()
    ids = (identity.incarnation, identity.data_topic_id, identity.journal_topic_id)
    c.append(encode_claim(Claim(1, identifier("a zombie"), FOLD_VERSION, *ids, clean=False)))
    c.append(encode_claim(Claim(99, identifier("a stranger"), FOLD_VERSION, ids[0], ids[1], b"x" * 16, clean=False)))
    c.append(GARBAGE)
    whole = Commit(2, identifier("second owner"), 99, GENESIS_HASH, 0, CommitOperations())
    data = encode_commit(whole)
    c.append(encode_part(Part(whole.owner, 99, 0, 2, data[:20])))
    c.append(GARBAGE)
    c.append(encode_part(Part(whole.owner, 99, 1, 2, data[20:])))
    c.commit(parts=2)


def _what_waits(c: Chronicle) -> None:
    """Unreceived messages and an Error, a free index, and data that is not ingested."""
    failed, waiting, asked = map(identifier, ("failed", "waiting", "asked"))
    for conversation in (failed, waiting):
        c.arrive(c.client.first(HERE, conversation, begin_block(group=conversation)), b"0", [("trace", b"1")])
    c.arrive(c.client.message(HERE, waiting, "other", sequence=1), None)
    c.arrive(c.peer.end(HERE, failed, End(c.client.id, THERE), Kind.ERROR), b"<Error/>")
    c.arrive(c.client.write(Kind.END_CALL, HERE, asked))
    c.arrive(c.peer.end(HERE, asked, End(c.client.id, HERE), role=Role.TARGET))
    c.commit()
    c.arrive(c.client.message(HERE, waiting, sequence=2), b"not ingested by anybody")
