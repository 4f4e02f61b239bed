"""`konverse verify` on a live system: it accepts correct logs, and names the offset of an error."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from konverse.bridge.broker import Broker
from konverse.bridge.cli.main import app
from konverse.bridge.reader.reader import Reader
from konverse.bridge.redis.view import ViewStore
from konverse.schemas.identifiers import Role, owner_writer, view_key
from konverse.schemas.system_messages import END_DIALOG, read_error
from konverse.schemas.wire.envelope import HEADER, decode, encode_envelope, encode_suffix, head
from konverse.schemas.wire.records import NO_SEQUENCE, Kind, Suffix
from konverse.schemas.wire.varint import varint
from tests.kit.commands import CliRunner, run
from tests.kit.oracle import read_raw
from tests.kit.servers import Servers
from tests.kit.shop import (
    DEADLINE_S,
    ORDER,
    ORDER_SERVICE,
    answer,
    begin,
    connected,
    open_shop,
    pumped,
    queue_of,
    receive,
    send_orders,
    until,
    work,
)
from tests.kit.topics import set_config

pytestmark = pytest.mark.stack

Verify = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def verify(servers: Servers, database: str) -> Verify:
    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        options = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database, "--json"]
        result = CliRunner().invoke(app, ["verify", *arguments, *options])
        assert result.stdout, result.stderr
        return result.exit_code, json.loads(result.stdout)

    return run


def forge(servers: Servers, broker: Broker, counter: int) -> None:
    """Write a record that claims to be an answer of the owner of Orders/0."""
    orders, shop = queue_of(broker, "Orders"), queue_of(broker, "Shop")
    address = shop.address(0)
    writer = owner_writer(orders.incarnation, 0)
    prefix = head(Kind.MESSAGE, 0, Role.TARGET, address.tag, writer) + b"no such dialog.."
    header = prefix + varint(counter) + varint(NO_SEQUENCE) + encode_suffix(Suffix("//sales/Receipt"))
    producer = Producer({"bootstrap.servers": servers.bootstrap})
    producer.produce(shop.topic, b"forged", b"key", 0, headers={HEADER: header})
    assert producer.flush(DEADLINE_S) == 0


def test_verify_accepts_the_errors_of_a_dropped_service(servers: Servers, database: str, verify: Verify) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        begin(broker).send(ORDER, b"waits")
        broker.flush()
        with broker.reader("Orders", timeout=1) as orders, pumped(orders):
            until(lambda: orders.conversations, "it has arrived")
            broker.admin.drop_service(ORDER_SERVICE)
            (error,) = receive(broker, "Shop", 1)
        assert read_error(error.body)[0] == -8470
        assert verify("Orders", "Shop")[0] == 0


def test_a_system_that_works_is_verified_while_it_works(servers: Servers, database: str, verify: Verify) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=2)
        send_orders(broker, dialogs=10, messages=100)
        with broker.reader("Orders", batch=3, max_messages=2) as reader, broker.reader("Shop"):
            reader.wait_for_partitions(2, DEADLINE_S)
            for done, transaction in enumerate(reader, 1):
                with transaction:
                    for message in transaction:
                        transaction.send(message.dialog, "//sales/Receipt", message.body)
                if done % 10 == 0:
                    code, said = verify()
                    assert (code, said["holds"], said["findings"]) == (0, True, [])
                if done == 40:
                    break
        code, said = verify()
    assert (code, said["findings"]) == (0, [])
    orders = [facts for name, facts in said["partitions"].items() if ".Orders/" in name]
    assert sum(facts["accepted"] for facts in orders) == 100
    assert sum(facts["consumed"] for facts in orders) >= 40
    assert sum(facts["outputs"] for facts in orders) >= 40


@pytest.mark.parametrize("when", ["before it is over", "when it is over"])
def test_a_conversation_id_that_another_process_begins_again_is_no_violation(
    servers: Servers, database: str, verify: Verify, when: str
) -> None:
    """While a side is open the message is received or comes back; when both have ended it comes back."""
    identifier, got = uuid.uuid4(), list[bytes]()
    with connected(servers.bootstrap, database) as broker, connected(servers.bootstrap, database) as another:
        open_shop(broker)
        first = begin(broker, conversation_id=identifier)
        first.send(ORDER, b"an order")
        first.end()
        broker.flush()
        with broker.reader("Orders") as orders, broker.reader("Shop") as shop, pumped(shop):
            shop.wait_for_partitions(shop.queue.partitions)
            if when == "before it is over":
                begin(another, conversation_id=identifier).send(ORDER, b"again")
                another.flush()
            for transaction in orders:
                with transaction:
                    got += [message.body for message in transaction if message.type == ORDER]
                    ended = END_DIALOG in [message.type for message in transaction]
                    if ended:
                        transaction.end(transaction.dialog)
                if ended:
                    break
            orders.settle()
            until(lambda: shop.conversations == 0 and orders.conversations == 0, "the end")
            if when == "when it is over":
                late = begin(another, conversation_id=identifier)
                late.send(ORDER, b"again")
                another.flush()
                with pumped(orders):
                    back = until(late.bounced, "the message to come back")
                assert [(one.body, one.reason.name) for one in back] == [(b"again", "ENDED")]
    assert got == [b"an order"] or (when == "before it is over" and got == [b"an order", b"again"])
    code, said = verify()
    assert (code, said["findings"]) == (0, [])


def test_an_output_that_no_commit_made_is_found_and_its_offset_named(
    servers: Servers, database: str, verify: Verify
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=3, messages=9)
        with broker.reader("Orders", timeout=1) as reader:
            assert answer(reader) == 9
        assert verify()[0] == 0
        forge(servers, broker, counter=10_000)
        code, said = verify()
        assert code == 1
        (finding,) = said["findings"]
        assert (finding["rule"], finding["kind"]) == ("I8", "false output")
        assert finding["partition"] == f"{queue_of(broker, 'Shop').topic}/0"
        assert "output 10000" in finding["text"]
        assert verify("Orders")[0] == 0, "the queue alone has no fault"


def forge_next(servers: Servers, topic: str, body: bytes, ahead: int = 1, copy: int = 0) -> None:
    """A stranger copies the header of a session's record, advances its counter, and writes another body."""
    copied = read_raw(servers.bootstrap, topic, 0)[copy]
    envelope = decode(dict(copied.headers)[HEADER] or b"")
    header = encode_envelope(
        envelope._replace(flags=0, counter=envelope.counter + ahead, sequence=ahead, suffix=Suffix(ORDER))
    )
    with Producer({"bootstrap.servers": servers.bootstrap}) as stranger:
        stranger.produce(topic, body, b"key", 0, headers={HEADER: header})
        assert stranger.flush(DEADLINE_S) == 0


def bodies_of(reader: Reader) -> list[bytes]:
    """Bodies of the waiting messages."""
    found = []
    for transaction in reader:
        with transaction:
            found += [message.body for message in transaction]
    return found


def test_a_forged_next_counter_loses_nothing_that_was_acknowledged_and_is_refuted(
    servers: Servers, database: str, verify: Verify, caplog: pytest.LogCaptureFixture
) -> None:
    """The second time, the owner was replaced between the stranger and the sender."""
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        orders = queue_of(broker, "Orders")
        dialog = begin(broker)
        dialog.send(ORDER, b"first")
        broker.flush()
        forge_next(servers, orders.topic, b"a stranger's")
        with Producer({"bootstrap.servers": servers.bootstrap}) as stranger:
            stranger.produce(orders.topic, b"no header of ours", b"key", 0)
            assert stranger.flush(DEADLINE_S) == 0
        dialog.send(ORDER, b"acknowledged")
        broker.flush()
        with broker.reader("Orders", timeout=1) as reader:
            assert bodies_of(reader) == [b"first", b"a stranger's", b"acknowledged"]
        forge_next(servers, orders.topic, b"another", ahead=1, copy=3)
        with broker.reader("Orders", timeout=1) as reader:
            assert bodies_of(reader) == [b"another"]
        for body in (b"and this", b"and that"):
            dialog.send(ORDER, body)
        broker.flush()
        with broker.reader("Shop", timeout=1) as shop, broker.reader("Orders", timeout=1) as reader:
            assert bodies_of(reader) == [b"and this", b"and that"]
            assert bodies_of(shop) == []
        alarms = [text for text in caplog.messages if text.startswith("FORGED")]
        code, said = verify()
        (state,) = broker.operations.reading_states("Orders")
        *_, sides = broker.why(dialog.id)
        view = ["view", "Orders", "--kafka", f"kafka://{servers.bootstrap}", "--database", database]
        shown, shown_as_json = run(*view), run(*view, "--json")
    assert (state.forged, state.forged_at) == (2, 5)
    assert shown[0] == shown_as_json[0] == 0
    assert "Orders/0: FORGED: 2 records have" in shown[1]
    assert "the last one at offset 5;" in shown[1]
    partition = json.loads(shown_as_json[1])["partitions"]["0"]
    assert (partition["forged"], partition["forged_at"]) == (2, 5)
    (target,) = [side for side in sides if side.role == "target"]
    assert any(why.startswith("FORGED: 2 records") and "offset 5;" in why for why in target.reasons)
    for pair in ("1 and 3", "4 and 5"):
        assert len([text for text in alarms if f"the records {pair} of {orders.topic}/0" in text]) == 1
        assert len([finding for finding in said["findings"] if f"offsets {pair} " in finding["text"]]) == 1
    (told,) = {text for text in alarms if text.startswith(f"FORGED: another producer writes to {orders.topic}/0 ")}
    assert "under the id of session" in told
    assert code == 1
    assert {(one["rule"], one["kind"]) for one in said["findings"]} == {("I5", "reordered"), ("I23", "forged")}
    facts = said["partitions"][f"{orders.topic}/0"]
    assert (facts["foreign"], facts["malformed"], facts["copied"], facts["duplicates"]) == (1, 0, 0, 0)
    assert facts["forged"] == 2


def test_the_command_counts_records_of_strangers_and_copies_and_refutes_nothing(
    servers: Servers, database: str
) -> None:
    """A record with a broken header, a copy of a record, a record for another queue, and one without a header."""
    options = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database]
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        topic = queue_of(broker, "Orders").topic
        begin(broker).send(ORDER, b"an order")
        broker.flush()
        raw = read_raw(servers.bootstrap, topic, 0)
        (sent,) = [record for record in raw if record.value == b"an order"]
        header = dict(sent.headers)[HEADER] or b""
        elsewhere = encode_envelope(decode(header)._replace(tag=bytes(byte ^ 255 for byte in decode(header).tag)))
        with Producer({"bootstrap.servers": servers.bootstrap}) as stranger:
            stranger.produce(topic, b"broken", b"key", 0, headers={HEADER: b"garbage"})
            stranger.produce(topic, sent.value, sent.key, 0, headers=dict(sent.headers))
            stranger.produce(topic, b"for another queue", b"key", 0, headers={HEADER: elsewhere})
            stranger.produce(topic, b"no header of ours", b"key", 0)
            assert stranger.flush(DEADLINE_S) == 0
        with broker.reader("Orders", timeout=1) as reader:
            assert bodies_of(reader) == [b"an order"]
        code, out, err = run("verify", "Orders", *options)
        as_json = run("verify", "Orders", *options, "--json")
    assert (code, err) == (0, "")
    assert "Verified" in out
    for told in (
        "1 record with a broken konverse header",
        "1 record without a konverse header",
        "1 record copied from another queue, or from an earlier one of this name",
    ):
        assert f"Orders/0: {told}\n" in out
    report = json.loads(as_json[1])
    assert (as_json[0], report["holds"], report["findings"]) == (0, True, [])
    (facts,) = report["partitions"].values()
    assert (facts["malformed"], facts["duplicates"], facts["copied"], facts["foreign"]) == (1, 1, 1, 1)
    assert (facts["accepted"], facts["forged"]) == (1, 0)


def test_a_log_that_an_open_transaction_holds_up_is_not_refuted_and_not_called_whole(
    servers: Servers, database: str, verify: Verify
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        topic = queue_of(broker, "Orders").topic
        dialog = begin(broker)
        dialog.send(ORDER, b"before")
        broker.flush()
        assert [message.body for message in receive(broker, "Orders", 1)] == [b"before"]
        with Producer({"bootstrap.servers": servers.bootstrap, "transactional.id": database}) as stranger:
            stranger.init_transactions(DEADLINE_S)
            stranger.begin_transaction()
            stranger.produce(topic, b"a stranger's", None, 0)
            stranger.flush(DEADLINE_S)
            for _ in range(3):  # the transmission queue acknowledges records that cannot be read yet
                with broker.transaction() as transaction:
                    transaction.send(dialog, ORDER, b"behind")
            broker.flush()
            code, report = verify()
            assert (code, report["findings"], report["holds"]) == (7, [], False)
            (sentence,) = report["stalled"]
            assert f"open transaction of a foreign producer holds up {topic}/0" in sentence
            result = CliRunner().invoke(
                app, ["verify", "--kafka", f"kafka://{servers.bootstrap}", "--database", database]
            )
            assert result.exit_code == 7
            assert "INCOMPLETE" in result.output
            assert f"holds up {topic}/0" in " ".join(result.output.split())
            stranger.abort_transaction(DEADLINE_S)
        until(lambda: verify()[0] == 0, "all is verified")
        assert verify()[1]["stalled"] == []


def test_a_view_that_says_something_else_is_found(servers: Servers, database: str, verify: Verify) -> None:
    with connected(servers.bootstrap, database, redis=servers.redis_url) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=3, messages=9)
        store: ViewStore = broker.view("Orders")
        with broker.reader("Orders", timeout=1) as reader, pumped(reader):
            until(lambda: (header := store.header(0)) is not None and header.unread == 9, "the view shows the orders")
            reader.settle(DEADLINE_S)
        code, said = verify("Orders", "--redis", servers.redis_url)
        assert (code, said["findings"]) == (0, [])
        orders = queue_of(broker, "Orders")
        with redis.Redis.from_url(servers.redis_url) as client:
            bucket = next(
                key
                for number in range(10_000)
                if client.exists(key := view_key(orders.topic, orders.subscription, 0, f"e:{number}"))
            )
            rows: Any = client.hgetall(bucket)
            field, value = next(iter(rows.items()))
            client.hset(bucket, field, value[:9] + varint(77) + value[10:])
        code, said = verify("Orders", "--redis", servers.redis_url)
        assert (code, [finding["kind"] for finding in said["findings"]]) == (1, ["wrong view"])


def test_the_verify_command_prints_success_findings_and_errors(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an instance of its own, since the transmission queue of an instance serves other tests too."""
    monkeypatch.setenv("KONVERSE_INSTANCE", f"i{uuid.uuid4().hex[:10]}")
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        options = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database]
        result = CliRunner().invoke(app, ["verify", *options])
        assert (result.exit_code, "Verified: each message once, in order" in result.stdout) == (0, True), result.stdout
        forge(servers, broker, counter=0)
        result = CliRunner().invoke(app, ["verify", *options])
        assert result.exit_code == 1
        assert "REFUTED: 1 finding" in result.stdout
        assert "false output (I8): offset 0 holds output 0" in " ".join(result.stdout.split())
        result = CliRunner().invoke(app, ["verify", "Nowhere", *options])
        assert (result.exit_code, result.stderr.strip().startswith("konverse: ")) == (2, True)


def quiet(reader: Reader) -> bool:
    """No snapshot is being made."""
    work(reader)
    return not any(owner.snapshots.busy for owner in reader.owners)


def test_a_verification_may_begin_at_the_last_snapshot_before_a_time(
    servers: Servers, database: str, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("konverse.dialog.owner.snapshots.SNAPSHOT_EVERY_RECORDS", 30)
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        for _ in range(3):
            send_orders(broker, dialogs=5, messages=50)
            with broker.reader("Orders", timeout=1) as reader:
                answer(reader)
                until(lambda: quiet(reader), "the snapshot is written")
        forge(servers, broker, 1_000)
        code, said = verify()
        assert code == 1
        whole = sum(facts["conversations"] for facts in said["partitions"].values())
        code, said = verify("--since", "2100-01-01")
        assert code == 1, "what is forged stands behind the snapshot"
        assert [finding["rule"] for finding in said["findings"]] == ["I8"]
        assert sum(facts["conversations"] for facts in said["partitions"].values()) == whole
        assert any(facts["begins_at"] for facts in said["partitions"].values())
        assert verify("--since", "2001-01-01")[1]["findings"] == said["findings"], "no snapshot is so old"


def test_a_time_before_all_times_is_no_time_of_a_log(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
    options = ["--kafka", f"kafka://{servers.bootstrap}", "--database", database]
    result = CliRunner().invoke(app, ["verify", "Orders", "--since", "0001-01-01", *options])
    assert (result.exit_code, "is not a possible time of a record" in result.stderr) == (2, True)


@pytest.fixture
def eager_cleaner(servers: Servers) -> Iterator[None]:
    """Let the broker compact logs every 200 ms instead of every 15 s."""
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    name = "log.cleaner.backoff.ms"

    def change(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, "200", incremental_operation=operation)
        for number in admin.list_topics(timeout=DEADLINE_S).brokers:  # Kafka takes one broker a request
            broker = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[entry])
            admin.incremental_alter_configs([broker])[broker].result(DEADLINE_S)

    change(AlterConfigOpType.SET)
    yield
    change(AlterConfigOpType.DELETE)


@pytest.mark.usefixtures("eager_cleaner")
def test_records_that_compaction_deleted_are_lost_also_when_the_topic_is_not_compacted_any_more(
    servers: Servers, database: str, verify: Verify
) -> None:
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        topic = queue_of(broker, "Orders").topic
        dialog = begin(broker)
        for number in range(5):
            dialog.send(ORDER, b"%d" % number)
        broker.flush()
        compacting = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "cleanup.policy": "compact"}
        for name, value in compacting.items():
            set_config(admin, topic, name, value)
        before = [record.offset for record in read_raw(servers.bootstrap, topic, 0)]

        def compacted() -> bool:
            with Producer({"bootstrap.servers": servers.bootstrap}) as stranger:  # only full segments are compacted
                stranger.produce(topic, b"a stranger's", b"key", 0)
                assert stranger.flush(DEADLINE_S) == 0
            return not {*before} <= {record.offset for record in read_raw(servers.bootstrap, topic, 0)}

        until(compacted, "the broker has compacted the topic")
        set_config(admin, topic, "cleanup.policy", "delete")
        left = {record.offset for record in read_raw(servers.bootstrap, topic, 0)}
        first = next(offset for offset in before if offset not in left)
        code, report = verify("Orders")
    assert (code, report["holds"]) == (1, False)
    (gap,) = [one for one in report["findings"] if "without a record" in one["text"]]
    assert f"the first of them {first} to" in gap["text"]
    assert gap["partition"] == f"{topic}/0"
