"""Conversations on a real Kafka, as an application sees them."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer

import konverse
from konverse.dialog.transaction.received import Message
from konverse.schemas.identifiers import journal_topic
from konverse.schemas.limits import BODY_BYTES_MAX
from konverse.schemas.system_messages import DEFAULT, END_DIALOG
from konverse.schemas.wire.envelope import HEADER, decode, encode_envelope
from konverse.schemas.wire.journal import Commit
from konverse.schemas.wire.journal import decode as decode_journal
from tests.kit.oracle import prove_exactly_once, read_raw
from tests.kit.readme import readme
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    NOTE,
    ORDER,
    ORDER_SERVICE,
    RECEIPT,
    SHOP_SERVICE,
    answer,
    begin,
    connected,
    drain,
    fill,
    open_shop,
    queue_of,
    receive,
    send_orders,
)
from tests.kit.workers import Job, Worker

pytestmark = pytest.mark.stack


def test_the_conversation_of_the_readme_works_as_often_as_it_is_run(
    servers: Servers, database: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        exec(
            compile(
                readme("import konverse\n\nbroker =", servers, database, "docs/guide/first-conversation.md"),
                "README.md",
                "exec",
            ),
            {},
        )
        assert capsys.readouterr().out.splitlines() == [
            "//sales/Order 0 b'three coffee cups'",
            f"{RECEIPT} b'accepted'",
            f"{END_DIALOG} b''",
        ]
    assert not [text for text in caplog.messages if "fire and forget" in text]


def test_the_program_of_the_readme_works_as_often_as_it_is_run(
    servers: Servers, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        exec(compile(readme("import konverse", servers, database, "README.md"), "README.md", "exec"), {})
        assert capsys.readouterr().out.splitlines() == ["b'three coffee cups'"]


def test_the_worker_of_the_readme_works(servers: Servers, database: str, capsys: pytest.CaptureFixture[str]) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        fine, empty, failed, ended = (begin(broker) for _ in range(4))
        for dialog, body in ((fine, b"x"), (empty, b""), (failed, b"x"), (ended, b"x")):
            dialog.send(ORDER, body)
        broker.flush()
        failed.end(error=7, description="changed <our> minds")
        ended.end()
        broker.flush()
        drain(broker, "Shop")  # passes the ends on
        exec(compile(readme("import konverse\n\n\ndef answer", servers, database), "README.md", "exec"), {})
        assert capsys.readouterr().out == "ended with error 7 changed <our> minds\n"
        answers = {message.dialog.id: message for message in drain(broker, "Shop")}
    assert (answers[fine.id].type, answers[empty.id].type) == (RECEIPT, konverse.ERROR)
    assert konverse.read_error(answers[empty.id].body) == (4711, "an order without a body")


def test_orders_are_answered_and_both_sides_end(servers: Servers, database: str) -> None:
    broker = konverse.connect(f"kafka://{servers.bootstrap}", database=database)
    broker.admin.create_message_type(ORDER)
    broker.admin.create_message_type(RECEIPT)
    broker.admin.create_contract("//sales/Ordering", {ORDER: "INITIATOR", RECEIPT: "TARGET"})
    broker.admin.create_queue("Orders", partitions=4)
    broker.admin.create_service(ORDER_SERVICE, queue="Orders", contracts=["//sales/Ordering"])
    broker.admin.create_queue("Shop")
    broker.admin.create_service(SHOP_SERVICE, queue="Shop")
    dialog = broker.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, "//sales/Ordering")
    assert [dialog.send(ORDER, b"hello"), dialog.send(ORDER, b"two")] == [0, 1]
    dialog.flush()
    with broker.reader("Orders", timeout=1) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    transaction.send(message.dialog, RECEIPT, b"ok " + message.body)
                transaction.end(transaction.dialog)
    taken: list[Message] = []
    with broker.reader("Shop", timeout=1) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    taken.append(message)
                    if message.type == END_DIALOG:
                        transaction.end(message.dialog)
    broker.close()
    assert [(m.type, m.body, m.sequence) for m in taken] == [
        (RECEIPT, b"ok hello", 0),
        (RECEIPT, b"ok two", 1),
        (END_DIALOG, b"", 2),
    ]
    assert {m.dialog.id for m in taken} == {dialog.id}


@pytest.mark.slow
def test_two_processes_share_2000_messages_of_50_dialogs_in_order_and_exactly_once(
    servers: Servers, database: str, tmp_path: Path
) -> None:
    job = Job(servers.bootstrap, database, str(tmp_path / "diary"), idle_s=5, share=2)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=4, home_partitions=2)
        with Worker(job) as first, Worker(job) as second:
            for worker in (first, second):
                worker.wait_for("reads")
            sent = send_orders(broker, dialogs=50, messages=2_000)
            assert (first.wait(), second.wait()) == (0, 0), first.errors + second.errors
            handled = [len(worker.said("handled")) for worker in (first, second)]
        proof = prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)
    assert (proof.messages, proof.replies) == (2_000, 2_000)
    assert sum(handled) >= 2_000
    assert min(handled) > 0, "one of the processes did all the work"


def test_a_request_gets_its_reply_on_the_same_conversation(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2, home_partitions=2)
        dialogs = [begin(broker) for _ in range(10)]
        for number, dialog in enumerate(dialogs):
            dialog.send(ORDER, b"%d" % number)
        with broker.reader("Orders", timeout=1) as reader:
            assert answer(reader) == 10
        replies = receive(broker, "Shop", 10)
    assert {m.dialog.id: m.body for m in replies} == {d.id: b"re %d" % n for n, d in enumerate(dialogs)}
    assert {(m.type, m.sequence) for m in replies} == {(RECEIPT, 0)}


def test_the_replies_of_a_reader_that_is_closed_at_once_reach_their_initiator(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        begin(broker).send(ORDER, b"one")
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            for transaction in reader:
                with transaction:
                    for message in transaction:
                        transaction.send(message.dialog, RECEIPT, b"re " + message.body)
                break
        assert [m.body for m in receive(broker, "Shop", 1)] == [b"re one"]


def test_a_handler_that_raises_gets_the_same_messages_again(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=1, messages=3)
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            fill(reader, 3)
            before: list[Message] = []

            with suppress(LookupError), next(reader) as transaction:
                before.extend(transaction)
                transaction.send(before[0].dialog, RECEIPT, b"never sent")
                transaction.end(before[0].dialog)
                raise LookupError
            with next(reader) as transaction:
                again = list(transaction)
                transaction.send(again[0].dialog, RECEIPT, b"sent")
        assert [(m.id, m.sequence, m.body) for m in again] == [(m.id, m.sequence, m.body) for m in before]
        assert [m.sequence for m in again] == [0, 1, 2]
        assert [m.body for m in drain(broker, "Shop")] == [b"sent"]


def test_a_message_keeps_its_id_when_another_reader_gets_it_again(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        send_orders(broker, dialogs=4, messages=12)
        seen: list[set[str]] = []
        for _ in range(2):
            with broker.reader("Orders", timeout=DEADLINE_S) as reader:
                fill(reader, 12)
                with suppress(LookupError), next(reader) as transaction:
                    seen.append({message.id for message in transaction})
                    raise LookupError
        taken = receive(broker, "Orders", 12)
    assert len({m.id for m in taken}) == 12
    assert all(ids <= {m.id for m in taken} for ids in seen)
    incarnations = {m.id.split("/")[0] for m in taken}
    assert incarnations == {str(uuid.UUID(bytes=queue_of(broker, "Orders").incarnation))}


def test_dialogs_that_are_related_are_received_together(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=4, home_partitions=3)
        first = begin(broker)
        related = [begin(broker, related_to=first) for _ in range(3)]
        other = begin(broker)
        for dialog in (first, *related, other):
            dialog.send(ORDER, dialog.id.bytes)
        with broker.reader("Orders", timeout=1) as reader:
            answer(reader)
        groups: list[set[uuid.UUID]] = []
        with broker.reader("Shop", timeout=DEADLINE_S) as reader:
            fill(reader, 5)
            while sum(map(len, groups)) < 5:
                with next(reader) as transaction:
                    groups.append({message.dialog.id for message in transaction})
                    assert {member.group_id for member in transaction.members} == {transaction.dialog.group_id}
    assert sorted(map(len, groups)) == [1, 4]
    assert {first.id, *(dialog.id for dialog in related)} in groups


def test_max_messages_limits_the_messages_of_a_transaction(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=1, messages=7)
        sizes: list[int] = []
        with broker.reader("Orders", timeout=DEADLINE_S, max_messages=3) as reader:
            fill(reader, 7)
            while sum(sizes) < 7:
                with next(reader) as transaction:
                    sizes.append(len([message.sequence for message in transaction]))
    assert sizes == [3, 3, 1]


@pytest.mark.parametrize(("batch", "least"), [(1, 1), (5, 5), (100, 6)])
def test_so_many_conversations_share_a_commit_as_batch_says(
    servers: Servers, database: str, batch: int, least: int
) -> None:
    """Commits for other reasons, such as acknowledgements, may carry some of them, so the largest commit counts."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=20, messages=20)
        with broker.reader("Orders", timeout=DEADLINE_S, batch=batch) as reader:
            fill(reader, 20)
            (owner,) = reader.owners
            owner.staging.settings = replace(owner.staging.settings, uncommitted_ms=60_000)  # time makes no commit
            for _ in range(20):
                with next(reader) as transaction:
                    list(transaction)
            reader.settle()
            assert owner.counters.transactions == 20
        journal = journal_topic(queue_of(broker, "Orders").topic)
    written = [decode_journal(record.value or b"") for record in read_raw(servers.bootstrap, journal, 0)]
    sizes = [len(record.operations.receive_endpoints) for record in written if isinstance(record, Commit)]
    assert sum(sizes) == 20
    assert least <= max(sizes) <= batch


def test_iteration_ends_when_nothing_comes_for_the_timeout_and_not_before(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        with broker.reader("Orders", timeout=0.2) as empty:
            assert list(empty) == []
        dialog = begin(broker)
        with broker.reader("Orders", timeout=1.5) as reader:
            taken: list[bytes] = []
            dialog.send(ORDER, b"0")
            for transaction in reader:
                with transaction:
                    taken += [message.body for message in transaction]
                if len(taken) < 3:
                    dialog.send(ORDER, b"%d" % len(taken))
    assert taken == [b"0", b"1", b"2"]


def test_the_key_of_a_dialog_is_the_key_of_its_records_and_chooses_the_partition(
    servers: Servers, database: str
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=8)
        keyed = [begin(broker, key=b"customer 7") for _ in range(5)]
        plain = begin(broker)
        for dialog in (*keyed, plain):
            dialog.send(ORDER, b"1")
            dialog.send(ORDER, b"2")
        broker.flush()
        queue = queue_of(broker, "Orders")
        keys: dict[bytes, list[tuple[int, bytes | None]]] = {}
        for partition in range(queue.partitions):
            for record in read_raw(servers.bootstrap, queue.topic, partition):
                keys.setdefault(decode(dict(record.headers)[HEADER] or b"").conversation, []).append(
                    (partition, record.key)
                )
    places = {place for dialog in keyed for place in keys[dialog.id.bytes]}
    assert len(places) == 1
    assert places.pop()[1] == b"customer 7"
    assert {key for _, key in keys[plain.id.bytes]} == {plain.id.bytes}


def test_headers_of_the_senders_own_come_with_the_message(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        begin(broker).send(ORDER, b"first")
        broker.flush()
        queue = queue_of(broker, "Orders")
        (record,) = read_raw(servers.bootstrap, queue.topic, 0)
        first = decode(dict(record.headers)[HEADER] or b"")
        envelope = first._replace(counter=1, sequence=1, flags=0)
        producer = Producer({"bootstrap.servers": servers.bootstrap})
        headers: list[tuple[str, str | bytes | None]] = [
            ("trace", b"abc"),
            (HEADER, encode_envelope(envelope)),
            ("trace", b"def"),
        ]
        producer.produce(queue.topic, b"second", record.key, 0, headers=headers)
        producer.flush()
        taken = receive(broker, "Orders", 2)
    assert [(m.body, m.headers) for m in taken] == [
        (b"first", []),
        (b"second", [("trace", b"abc"), ("trace", b"def")]),
    ]


@pytest.mark.parametrize("size", [0, 1, BODY_BYTES_MAX])
def test_bodies_of_every_size_arrive_unchanged_both_ways(servers: Servers, database: str, size: int) -> None:
    body = (uuid.uuid4().bytes * (size // 16 + 1))[:size]
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        for _ in range(3):
            dialog.send(NOTE, body)
        with broker.reader("Orders", timeout=1) as reader:
            for transaction in reader:
                with transaction:
                    for message in transaction:
                        assert message.body == body
                        transaction.send(message.dialog, NOTE, message.body)
        assert [m.body == body for m in receive(broker, "Shop", 3)] == [True] * 3


def test_bytearray_and_memoryview_are_bodies_too(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        dialog = begin(broker)
        dialog.send(ORDER, bytearray(b"one"))  # type: ignore[arg-type]
        dialog.send(ORDER, memoryview(b"two"))  # type: ignore[arg-type]
        assert [m.body for m in receive(broker, "Orders", 2)] == [b"one", b"two"]


def test_the_default_contract_and_type_need_not_be_created(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        broker.admin.create_service("//sales/Anything", queue="Orders", contracts=[DEFAULT])
        dialog = broker.begin_dialog(SHOP_SERVICE, "//sales/Anything")
        dialog.send()
        dialog.send(body=b"x")
        taken = receive(broker, "Orders", 2)
    assert [(m.type, m.body, m.dialog.contract) for m in taken] == [(DEFAULT, b"", DEFAULT), (DEFAULT, b"x", DEFAULT)]


def test_a_message_has_its_services_its_id_and_its_timestamp(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        begin(broker).send(ORDER, b"x")
        (message,) = receive(broker, "Orders", 1)
        queue = queue_of(broker, "Orders")
    endpoint = message.dialog
    assert (endpoint.service, endpoint.far_service) == (ORDER_SERVICE, SHOP_SERVICE)
    assert not endpoint.is_initiator
    assert message.id == f"{uuid.UUID(bytes=queue.incarnation)}/0/{message.offset}"
    assert message.timestamp.tzinfo is not None


def test_a_message_that_the_loop_did_not_reach_stays_in_the_queue(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=1, messages=3)
        with broker.reader("Orders", timeout=DEADLINE_S) as reader:
            fill(reader, 3)
            with next(reader) as transaction:
                for message in transaction:
                    assert message.sequence == 0
                    break
            with next(reader) as transaction:
                assert [message.sequence for message in transaction] == [1, 2]
