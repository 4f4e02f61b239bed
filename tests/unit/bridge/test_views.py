"""Rows of the views, from the states of partitions and the session of a process."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.client.outgoing import Names, Outgoing, missing_names
from konverse.bridge.client.unsent import unsent
from konverse.bridge.owner.follower import Ahead
from konverse.bridge.views.contents import Contents
from konverse.bridge.views.endpoints import NOT_IN_REDIS, endpoints, groups, shown_endpoint
from konverse.bridge.views.outbox import outputs
from konverse.bridge.views.partitions import Folded, StateReader
from konverse.bridge.views.rows import ConversationEndpointRow, QueueRow
from konverse.bridge.views.view_result import View
from konverse.bridge.views.views import COLUMNS, Views
from konverse.dialog.fold.journal import JournalHead
from konverse.dialog.owner.view import ViewRow, field_of, pack, unpack
from konverse.dialog.session.dialogs import SessionDialog
from konverse.dialog.session.session import Session
from konverse.dialog.session.transactions import StagedTransaction
from konverse.dialog.state.outbox import Run
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import ConversationEnded
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.system_messages import END_DIALOG, ERROR
from konverse.schemas.wire.envelope import encode_suffix
from konverse.schemas.wire.records import BounceId, Kind, Suffix
from tests.kit.batches import Query
from tests.kit.builders import GROUP, Pair, Side, address_of, begin_block, identifier, log_of

C = identifier("a conversation")
NAMES = Names("shop", "store", "orders")
TOPICS = ("orders", "replies")
NOW_MS = 1_800_000_000_000


class Nothing:
    """Stands in for a catalog in which everything was dropped."""

    asked = 0
    broker_id = UUID(int=1)

    def find(self, _kind: type, _name: str) -> Any:
        self.asked += 1

    def id_of(self, _kind: type, _name: str) -> int | None:
        return None

    def database_of(self, _topic: str) -> str:
        return "sales"

    def broker_id_of(self, _database: str) -> UUID:
        return self.broker_id


CATALOG = cast("Catalog", Nothing())


def folded(side: Side, committed: dict[Address, int] | None = None, **head: Any) -> Folded:
    """The partition, with an owner that has just written, and with all outputs in the journal."""
    identity = log_of(side.queue)
    known = JournalHead(identity, now_ms=NOW_MS, clean=False)
    for name, value in head.items():
        setattr(known, name, value)
    if committed is None:
        committed = {address: stream.next for address, stream in side.state.streams.items()}
    queue = Queue(side.queue, side.queue, "queue", 1, identity.incarnation, b"d" * 16, b"j" * 16)
    return Folded(queue, 0, Ahead(side.state, known, committed, 0), NOW_MS)


def said(folded: Folded, *topics: str) -> list[Outgoing]:
    looking = StateReader.__new__(StateReader)
    looking._silence_timeout_s = 60.0
    return [*outputs(folded, looking.no_owner_reason(folded), topics or TOPICS)]


# -------------------------------------------------------------------------------------------------------- contents


def contents(side: Side) -> list[QueueRow]:
    return Contents(CATALOG).rows(side.state)


def test_messages_stand_in_the_order_in_which_they_came_and_have_numbers_of_their_conversation() -> None:
    pair = Pair()
    for number in range(2):
        pair.begin(f"c{number}")
    for number in range(2):
        pair.send(identifier(f"c{number}"), b"more")
    rows = contents(pair.target)
    assert [row.queuing_order for row in rows] == [0, 1, 2, 3]
    assert [row.message_sequence_number for row in rows] == [0, 0, 1, 1]
    assert {row.status for row in rows} == {1}
    assert {(row.service_name, row.service_contract_name, row.service_id) for row in rows} == {
        ("store", "orders", None)
    }
    pair.target.receive(pair.receiver(identifier("c0")))
    pair.send(identifier("c0"), b"again")
    rows = contents(pair.target)
    assert [(row.message_sequence_number, row.queuing_order) for row in rows] == [(0, 1), (1, 3), (2, 4)]


def test_the_validation_of_a_message_type_is_looked_up_once() -> None:
    pair = Pair()
    pair.begin(messages=5)
    catalog = Nothing()
    assert {row.validation for row in Contents(cast("Catalog", catalog)).rows(pair.target.state)} == {"N"}
    assert catalog.asked == 1


def test_rows_of_a_batch_are_not_complete_before_it_is_decided() -> None:
    query, side = Query(), Side("orders")
    task, known = query.task(), query.task(1, "another")
    side.take(*query.first(task, C, b"0"))
    side.take(*query.message(known, C, b"1"))
    rows = contents(side)
    assert [(row.status, row.message_body, row.message_sequence_number) for row in rows] == [
        (2, b"0", None),
        (2, b"1", None),
    ]
    assert [row.service_name for row in rows] == ["store", None], "who receives it is said by its first message"
    query.decide(side, [(task, 1), (known, 1)])
    rows = contents(side)
    assert [(row.status, row.message_sequence_number, row.service_name) for row in rows] == [
        (1, 0, "store"),
        (1, 1, "store"),
    ]


def test_the_repr_of_a_row_omits_the_message_body() -> None:
    pair = Pair()
    pair.begin()
    pair.send(C, b"secret")
    pair.target.send(pair.receiver(C), b"secret")
    (one,) = said(folded(pair.target))
    for row in (*contents(pair.target), one.row(None)):
        assert "secret" not in repr(row)
        assert str(UUID(bytes=C)) in repr(row)


# ------------------------------------------------------------------------------------------------------- endpoints


def test_a_packed_endpoint_row_differs_only_in_columns_that_redis_does_not_store() -> None:
    pair = Pair()
    pair.begin(messages=3)
    endpoint = pair.receiver(C)
    (whole,) = endpoints(pair.target.state, CATALOG)
    shown = shown_endpoint(unpack(field_of(endpoint), bytes(8) + pack(endpoint)), str(CATALOG.broker_id))
    different = {name for name in ConversationEndpointRow._fields if getattr(whole, name) != getattr(shown, name)}
    assert different == {"conversation_group_id", "far_service"}
    assert different < NOT_IN_REDIS
    assert (whole.state, whole.state_desc, whole.send_sequence, whole.receive_sequence) == ("CO", "CONVERSING", 0, 3)
    (initiator,) = endpoints(pair.home.state, CATALOG)
    assert (initiator.state, initiator.send_sequence, initiator.lifetime) == ("SO", None, None)


def test_the_timer_of_a_row_is_a_time() -> None:
    pair = Pair()
    pair.begin()
    endpoint = pair.receiver(C)
    row: ViewRow = unpack(field_of(endpoint), bytes(8) + pack(endpoint))
    assert shown_endpoint(row, "").dialog_timer is None
    timer = shown_endpoint(row._replace(timer_due_ms=1_500), "").dialog_timer
    assert timer is not None
    assert timer.isoformat() == "1970-01-01T00:00:01.500000+00:00"


def test_a_group_is_there_once() -> None:
    pair = Pair()
    pair.answered("a", "b")
    (group,) = groups(pair.home.state, CATALOG)
    assert group.conversation_group_id == UUID(bytes=GROUP)
    assert len([*groups(pair.target.state, CATALOG)]) == 2


# ---------------------------------------------------------------------------------------------------------- outbox


def test_a_reply_stands_in_the_view_until_the_journal_says_that_it_arrived() -> None:
    pair = Pair()
    pair.begin()
    pair.target.send(pair.receiver(C), b"0", b"1")
    rows = [one.row(None) for one in said(folded(pair.target))]
    assert [(row.message_body, row.message_sequence_number, row.transmission_status) for row in rows] == [
        (b"0", 0, ""),
        (b"1", 1, ""),
    ]
    assert {(row.from_service_name, row.to_service_name, row.service_contract_name) for row in rows} == {
        ("store", "shop", "orders")
    }
    stream = pair.target.state.streams[pair.home.address]
    stream.acknowledge(1)
    assert [one.body for one in said(folded(pair.target))] == [b"1"]
    pair.target.deliver(pair.home)
    assert said(folded(pair.target)) == []


def test_the_status_of_an_output_gives_the_reason_why_it_waits() -> None:
    pair = Pair()
    pair.begin()
    pair.target.send(pair.receiver(C), b"0", b"1")
    stream, other = pair.target.state.streams[pair.home.address], pair.target.state.stream_to(address_of("elsewhere"))
    assert [one.status for one in said(folded(pair.target, {stream.address: 1}))] == [
        "",
        "the owner of orders/0 has not committed it yet",
    ]
    assert {one.status for one in said(folded(pair.target, clean=True))} == {"orders/0 has no owner"}
    long_ago = NOW_MS - 3_600_000
    assert {one.status for one in said(folded(pair.target, now_ms=long_ago))} == {
        "the owner of orders/0 is silent for 3,600 s"
    }
    other.push(Run(b"", b"", -1, b"", [None]))
    other.runs.clear()
    pair.target.state.hold(stream, behind=other)
    pair.target.send(pair.receiver(C), b"2")
    assert [one.status for one in said(folded(pair.target))] == [
        "",
        "",
        "it waits for earlier records to elsewhere/0",
    ]


@pytest.mark.parametrize(("code", "kind"), [(0, END_DIALOG), (4711, ERROR)])
def test_an_end_is_a_row_and_the_answer_to_it_is_none(code: int, kind: str) -> None:
    pair = Pair()
    pair.begin()
    pair.target.end(pair.receiver(C), code, "no" if code else "")
    (row,) = [one.row(None) for one in said(folded(pair.target))]
    assert (row.message_type_name, row.is_end_of_dialog, row.is_conversation_error) == (kind, not code, bool(code))
    pair.target.deliver(pair.home)
    pair.home.end(pair.initiator(C))
    assert pair.home.outputs(pair.target.address), "the target is told that it may forget"
    assert said(folded(pair.home)) == []


def test_a_bounce_to_another_partition_is_not_in_the_view() -> None:
    pair = Pair()
    pair.target.take(pair.client.message(pair.target.address, C, suffix=Suffix("order", home=pair.home.address)))
    assert [one.kind for one in pair.target.outputs(pair.home.address)] == [Kind.BOUNCE]
    assert said(folded(pair.target)) == []


def test_outputs_to_topics_of_another_database_are_left_out() -> None:
    pair = Pair()
    pair.begin()
    pair.target.send(pair.receiver(C), b"0")
    assert said(folded(pair.target), "another") == []


def test_names_that_are_not_known_here_are_looked_up_elsewhere() -> None:
    side = Side("transmission")
    stream = side.state.stream_to(address_of())
    prefix = stream.head(Kind.MESSAGE, Role.INITIATOR) + C
    stream.push(Run(prefix, b"", 4, encode_suffix(Suffix("order", home=address_of("replies"))), [b""]))
    found = said(folded(side))
    assert missing_names(found) == {(Role.INITIATOR, C)}
    assert found[0].row(NAMES).to_service_name == "store"
    assert found[0].row(None).to_service_name is None


# --------------------------------------------------------------------------------------------------------- session


@pytest.fixture
def session() -> Session:
    made = Session(identifier("a session"))
    made.transmit_to(address_of("transmission"))
    return made


def begun(session: Session, name: str = "a conversation") -> SessionDialog:
    return session.begin(identifier(name), begin_block(group=identifier(name)))[0]


def facts(session: Session) -> list[tuple[Kind, int, bytes | None]]:
    return [(one.kind, one.sequence, one.body) for one in unsent(session, "") if one.conversation == C]


def test_messages_are_listed_until_kafka_has_acknowledged_them(session: Session) -> None:
    dialog = begun(session)
    for body in (b"0", b"1"):
        session.send(dialog, "order", body)
    held = facts(session)
    assert held == [(Kind.MESSAGE, 0, b"0"), (Kind.MESSAGE, 1, b"1")], "they wait for the BEGIN"
    session.drained()
    assert facts(session) == held, "they are with Kafka's client"
    (first, second) = unsent(session, "Kafka is away")
    assert (first.names, second.names, second.status, second.message_type) == (NAMES, NAMES, "Kafka is away", "order")
    session.drained()
    session.send(dialog, "order", b"2")
    assert facts(session) == [(Kind.MESSAGE, 2, b"2")]
    session.drained()
    assert facts(session) == []


def test_a_pending_end_is_listed_after_pending_messages_and_until_it_is_acknowledged(session: Session) -> None:
    dialog = begun(session)
    session.drained()
    session.send(dialog, "order", b"0")
    session.end(dialog)
    with pytest.raises(ConversationEnded):
        session.end(dialog)
    assert facts(session) == [(Kind.MESSAGE, 0, b"0"), (Kind.END_CALL, -1, None)]
    session.drained()
    assert facts(session) == [(Kind.END_CALL, -1, None)]
    session.drained()
    assert facts(session) == []


def test_a_bounce_that_goes_again_is_not_counted_among_them(session: Session) -> None:
    dialog = begun(session)
    session.drained()
    session.redirect(dialog, BounceId(b"w" * 16, 0, address_of()))
    session.send(dialog, "order", b"behind it")
    assert facts(session) == [(Kind.MESSAGE, -1, b"behind it")]


def test_the_steps_of_a_transaction_are_rows_before_and_after_it_leaves(session: Session) -> None:
    dialog = begun(session)
    transaction = StagedTransaction(session)
    transaction.send(dialog, "order", b"0")
    transaction.end(dialog)
    assert facts(session) == [], "nothing of it happened yet"
    session.commit(transaction)
    assert facts(session) == [(Kind.MESSAGE, -1, b"0"), (Kind.END_CALL, -1, None)], "it waits for the BEGIN"
    session.drained()
    assert facts(session) == [(Kind.MESSAGE, 0, b"0"), (Kind.END_CALL, -1, None)]
    assert {one.names for one in unsent(session, "")} == {NAMES}
    session.drained()
    assert facts(session) == []


# --------------------------------------------------------------------------------------------------------- listing


def test_a_view_is_a_sequence() -> None:
    view = View([1, 2, 3])
    assert (len(view), view[0], view[1:], [*view], 2 in view) == (3, 1, [2, 3], [1, 2, 3], True)
    assert repr(view) == "<View of 3 rows>"
    assert view.sources == ()


def test_every_view_has_its_columns_by_name() -> None:
    made = {name for name in vars(Views) if not name.startswith("_")} - {"transmission_status"}
    assert made == set(COLUMNS)


def test_an_outgoing_message_names_the_broker_id_of_its_begin() -> None:
    begin = begin_block(group=C)._replace(broker_instance="an id")
    first = Outgoing(C, Role.INITIATOR, Kind.MESSAGE, "order", 0, b"", Names.of(begin), "")
    assert first.row(None).to_broker_instance == "an id"
    later = first._replace(names=None)
    assert (later.row(NAMES).to_broker_instance, later.row(None).to_broker_instance) == (None, None)
