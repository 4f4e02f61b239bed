"""Hypothesis strategies for everything that a record can hold: names in any script, extreme numbers, every detail."""

from __future__ import annotations

import unicodedata
from itertools import groupby
from operator import itemgetter
from typing import Final

from hypothesis import strategies as st

from konverse.schemas.catalog.objects import Change, Contract, MessageType, Queue, SentBy, Service, Validation, Written
from konverse.schemas.catalog.priorities import BrokerPriority
from konverse.schemas.catalog.routes import Route
from konverse.schemas.catalog.schema_collections import XmlSchemaCollection
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.levels import HIGHEST, LOWEST
from konverse.schemas.limits import COMMIT_PARTS_MAX, TIME_MS_MAX, TIMEOUT_MS_MAX, WRITER_RECORDS_MAX
from konverse.schemas.system_messages import DIALOG_TIMER, ERROR, Rejection
from konverse.schemas.wire.batches import ABANDONED, Batch
from konverse.schemas.wire.journal import Claim, Commit, CommitOperations, EndOperation, Part
from konverse.schemas.wire.moved import Moved, MovedFinish, MovedMessage
from konverse.schemas.wire.operations import (
    Abandon,
    Attempt,
    Cleanup,
    Exclude,
    Fail,
    Finish,
    GiveBack,
    Lost,
    Move,
    MoveAway,
    Prioritize,
    Prune,
    Rare,
    Relocate,
    Resume,
    SetTimer,
    Skip,
    Suspend,
    Try,
    Withdraw,
)
from konverse.schemas.wire.records import (
    FOR_EVER,
    Begin,
    Bounce,
    BounceId,
    BounceReason,
    Closed,
    Decision,
    Detail,
    End,
    Envelope,
    FinAnswer,
    Forwarded,
    Kind,
    Notice,
    NoticeReason,
    Opened,
    Origin,
    Pending,
    Suffix,
    Timer,
    Veto,
    WriterClosed,
)
from tests.kit.table_strategies import table_changes

INT_MAX: Final = 2**31 - 1

times: Final = st.integers(-1, TIME_MS_MAX)
"""Milliseconds since 1970."""

timeouts: Final = st.integers(1, TIMEOUT_MS_MAX)
"""Durations of timers and lifetimes, in milliseconds."""

identifiers: Final = st.binary(min_size=16, max_size=16)
tags: Final = st.binary(min_size=4, max_size=4)
texts: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
"""Any text that UTF-8 can encode."""

names: Final = (
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
    .map(lambda text: unicodedata.normalize("NFC", text))
    .filter(bool)
)
"""Names that `check_name` allows."""

awkward_names: Final = st.one_of(names, st.text("aA0._-/{}% é-", min_size=1, max_size=6))
"""The same, with many separators and escape characters."""


def _around(number: int) -> st.SearchStrategy[int]:
    return st.integers(max(number - 2, 0), number + 2)


counters: Final = st.one_of(
    st.integers(0, 300),
    st.sampled_from([2**power for power in range(6, 60)]).flatmap(_around),
    st.integers(0, WRITER_RECORDS_MAX - 1),
)
"""Small numbers, numbers around the lengths of an Avro long, and any that a writer may use."""

sequences: Final = st.one_of(st.just(-1), counters)
ints: Final = st.integers(0, INT_MAX)

topics: Final = st.text("aA0._-", min_size=1, max_size=8)
addresses: Final = st.builds(Address, topic=topics, partition=st.integers(0, 2**31 - 1), tag=tags)

begins: Final = st.builds(
    Begin,
    from_service=texts,
    to_service=texts,
    contract=texts,
    home=addresses,
    target=addresses,
    group=identifiers,
    key=st.none() | st.binary(max_size=30),
    broker_instance=st.none() | texts,
    lifetime_ms=st.just(FOR_EVER) | timeouts,
)

origins: Final = st.builds(
    Origin, topic=topics, partition=st.integers(0, 2**31 - 1), incarnation=identifiers, offset=counters
)
user_headers: Final = st.lists(st.tuples(texts, st.none() | st.binary(max_size=10)), max_size=2)

details: Final[st.SearchStrategy[Detail]] = st.one_of(
    st.none(),
    st.builds(
        End,
        opener=identifiers,
        home=addresses,
        received=st.lists(st.tuples(identifiers, counters), max_size=4).map(tuple),
    ),
    st.builds(BounceId, writer=identifiers, counter=counters, at=addresses),
    st.builds(Bounce, writer=identifiers, counter=counters, at=addresses, reason=st.sampled_from(BounceReason)),
    st.builds(Notice, writer=identifiers, next=counters, at=addresses, reason=st.sampled_from(NoticeReason)),
    st.builds(FinAnswer, asker=identifiers, received=st.lists(st.tuples(identifiers, counters), max_size=4).map(tuple)),
    st.builds(
        Pending,
        query=identifiers,
        batch=counters,
        begins=st.booleans(),
        judge=addresses,
        judge_writer=identifiers,
    ),
    st.builds(Decision, query=identifiers, batch=counters, begins=st.booleans(), final=st.booleans()),
    st.builds(Veto, query=identifiers, batch=counters, begins=st.booleans(), attempt=identifiers, at=addresses),
    st.builds(WriterClosed, writer=identifiers, closed_at=counters, at=addresses, heir=st.none() | identifiers),
    st.builds(Opened, opener=identifiers),
    st.builds(
        Forwarded,
        hop=st.integers(1, INT_MAX),
        origin=origins,
        timestamp_ms=times,
        headers=user_headers.map(tuple),
        header=st.binary(max_size=60),
    ),
    st.builds(Closed, ints, st.none() | addresses, st.booleans()),
    st.builds(Timer, timeouts),
)

suffixes: Final = st.builds(
    Suffix,
    message_type=texts,
    fragment=st.none() | st.tuples(ints, ints),
    home=st.none() | addresses,
    begin=st.none() | begins,
    origin=st.none() | identifiers,
    detail=details,
)

envelopes: Final = st.builds(
    Envelope,
    kind=st.sampled_from([kind for kind in Kind if kind is not Kind.LATER]),
    flags=st.integers(0, 255),
    role=st.sampled_from(Role),
    tag=tags,
    writer=identifiers.filter(any),
    conversation=identifiers,
    counter=counters,
    sequence=sequences,
    suffix=suffixes,
).filter(lambda one: one.kind is not Kind.CLOSE_WRITER or any(one.conversation))
"""Envelopes that `decode` takes: none is written by the zero id, and none closes it."""

claims: Final = st.builds(
    Claim,
    epoch=counters,
    owner=identifiers,
    fold_version=ints,
    incarnation=identifiers,
    data_topic_id=identifiers,
    journal_topic_id=identifiers,
    clean=st.booleans(),
)

parts: Final = st.integers(1, COMMIT_PARTS_MAX).flatmap(
    lambda count: st.builds(
        Part,
        owner=identifiers,
        number=counters,
        part=st.integers(0, count - 1),
        parts=st.just(count),
        data=st.binary(max_size=40),
    )
)


levels: Final = st.integers(LOWEST, HIGHEST)
some_addresses: Final = st.lists(addresses, max_size=3).map(tuple)

rare: Final[st.SearchStrategy[Rare]] = st.one_of(
    st.builds(Prune, counters),
    st.builds(Abandon, identifiers, some_addresses, some_addresses),
    st.builds(Exclude, identifiers, counters, st.booleans(), identifiers),
    st.builds(Attempt, st.lists(counters, max_size=3)),
    st.builds(Try, st.lists(counters, max_size=3)),
    st.builds(Suspend, counters, texts, st.booleans()),
    st.builds(Resume, counters),
    st.builds(Skip, counters),
    st.builds(Finish, counters),
    st.builds(Relocate, endpoint=counters, to=addresses, generation=ints, pieces=ints),
    st.builds(Lost, counters, counters),
    st.builds(SetTimer, counters, timeouts),
    st.builds(Cleanup, counters),
    st.builds(Withdraw, counters),
    st.builds(GiveBack, counters, texts, st.binary(max_size=20)),
    st.builds(Move, counters, identifiers),
    st.builds(MoveAway, counters, identifiers, addresses),
    st.dictionaries(counters, levels, max_size=4).map(lambda found: Prioritize([*found], bytes(found.values()))),
    st.builds(Fail, counters, st.integers(-9_999, -1), texts),
)


_moved_messages: Final = st.builds(
    MovedMessage,
    type=texts,
    body=st.none() | st.binary(max_size=20),
    timestamp_ms=times,
    headers=user_headers,
    origin=origins,
)

_finishes: Final = st.builds(
    MovedFinish,
    own=st.booleans(),
    peer=st.booleans(),
    answer=st.none() | st.lists(st.tuples(identifiers, sequences), max_size=3).map(tuple),
    askers=st.lists(identifiers, max_size=3).map(tuple),
)


@st.composite
def moved_states(draw: st.DrawFn) -> Moved:
    """The state of an endpoint that moves. Received messages are consumed, waiting or discarded."""
    waiting, consumed = draw(st.lists(_moved_messages, max_size=3)), draw(ints)
    return Moved(
        generation=draw(st.integers(1, 100)),
        previous=draw(addresses),
        first=draw(addresses),
        named=draw(st.booleans()),
        state=draw(st.integers(0, 6)),
        service=draw(texts),
        far_service=draw(texts),
        contract=draw(texts),
        peer=draw(addresses),
        opener=draw(identifiers),
        key=draw(st.none() | st.binary(max_size=20)),
        group=draw(st.none() | identifiers),
        begin=draw(st.none() | begins),
        received=consumed + len(waiting) + draw(st.integers(0, 3)),
        consumed=consumed,
        sent=draw(sequences),
        voices=draw(st.lists(st.tuples(identifiers, sequences), max_size=3)),
        waiting=waiting,
        urgent=[draw(_moved_messages)._replace(type=name) for name in (DIALOG_TIMER, ERROR) if draw(st.booleans())],
        finished=draw(st.none() | _finishes),
        timer_ms=draw(times),
        expires_ms=draw(times),
        end_of_stream=draw(st.none() | texts),
        level=draw(levels),
    )


@st.composite
def operations(draw: st.DrawFn) -> CommitOperations:
    """Operations as a decoder returns them: neighbours with one endpoint and type are joined."""
    runs = st.lists(st.tuples(counters, texts, st.lists(st.binary(max_size=40), min_size=1, max_size=3)), max_size=4)
    sends = draw(runs.map(lambda some: [next(g) for _, g in groupby(some, itemgetter(0, 1))]))
    receives = draw(st.lists(st.tuples(counters, counters), max_size=5))
    return CommitOperations(
        begins=draw(st.lists(st.tuples(identifiers, begins), max_size=2)),
        receive_endpoints=[endpoint for endpoint, _ in receives],
        receive_positions=[position for _, position in receives],
        sends=sends,
        ends=draw(st.lists(st.builds(EndOperation, counters, ints, texts), max_size=3)),
        rare=draw(st.lists(rare, max_size=3)),
    )


commits: Final = st.builds(
    Commit,
    epoch=counters,
    owner=identifiers,
    number=counters,
    previous_hash=st.binary(min_size=32, max_size=32),
    ingest_to=counters,
    operations=operations(),
    output_acks=st.lists(st.tuples(addresses, counters), max_size=3),
    rejected=st.lists(st.tuples(counters, st.builds(Rejection, ints, texts)), max_size=3),
    contested=st.lists(counters, max_size=3), release=st.booleans(),
)  # fmt: skip


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Batches with some winners and places."""
    attempts = draw(st.lists(identifiers, unique=True, max_size=4).map(tuple))
    places = st.dictionaries(addresses, st.tuples(*(st.integers(0, 300) for _ in attempts)), max_size=3)
    return Batch(
        draw(identifiers), draw(counters.filter(lambda n: n < ABANDONED)), attempts, draw(places), draw(places)
    )


winners: Final = st.dictionaries(identifiers, st.integers(0, 300), max_size=4).map(lambda some: tuple(some.items()))

catalog_objects: Final[st.SearchStrategy[Written]] = st.one_of(
    table_changes(texts),
    st.builds(MessageType, name=texts, validation=st.sampled_from(Validation), schema_collection=texts, schema=texts),
    st.builds(XmlSchemaCollection, name=texts, documents=st.lists(texts, max_size=3).map(tuple)),
    st.builds(Route, name=texts, address=texts, service_name=texts, expires_ms=counters, mirror_address=texts),
    st.builds(BrokerPriority, name=texts, contract=texts, local_service=texts, remote_service=texts, level=ints),
    st.builds(Contract, name=texts, sent_by=st.dictionaries(texts, st.sampled_from(SentBy), max_size=4)),
    st.builds(
        Queue,
        name=texts,
        topic=texts,
        subscription=texts,
        partitions=ints,
        incarnation=identifiers,
        data_topic_id=identifiers,
        journal_topic_id=identifiers,
        status=st.booleans(),
        retention=st.booleans(),
        poison_message_handling=st.booleans(),
    ),
    st.builds(Service, name=texts, queue=texts, contracts=st.lists(texts, max_size=4).map(tuple)),
)

changes: Final = st.builds(
    Change, expected_offset=counters, database=texts, kind=texts, name=texts, value=st.none() | catalog_objects
)


@st.composite
def damaged(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    """Damaged bytes: arbitrary ones, or valid ones that were cut, extended, changed, or given an absurd number."""
    data = bytearray(draw(valid))
    at = draw(st.integers(0, len(data)))
    match draw(st.sampled_from(["any", "cut", "extend", "change", "number", "drop", "swap"])):
        case "any":
            return draw(st.binary(max_size=200))
        case "cut":
            return bytes(data[:at])
        case "extend":
            return bytes(data) + draw(st.binary(min_size=1, max_size=30))
        case "change":
            for _ in range(draw(st.integers(1, 4))):
                data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        case "number":
            data[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from(ABSURD))
        case "drop":
            del data[at : at + draw(st.integers(1, 20))]
        case _:
            other = draw(st.integers(0, len(data)))
            data[at:] = data[at:][: other // 2] + data[:other]
    return bytes(data)


def _zigzag(number: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    return bytes([*out, rest])


ABSURD: Final = [
    *(_zigzag(number) for number in (2**60, -(2**60), 2**63 - 1, -(2**63), 2**40, -1, 2**31, 2**20, -(2**20))),
    b"\xff" * 12,
    b"\x80" * 40 + b"\x00",
]
"""Avro numbers that a decoder must survive as a length, a count or an index."""
