"""Dialogs between databases of one instance, by every way of beginning and sending, and across `konverse verify`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from konverse.bridge.admin.leaks import Leaked
from konverse.bridge.cli.main import app
from konverse.bridge.cli.verify import COUNTED
from konverse.bridge.client.outcomes import queue_at
from konverse.dialog.transaction.transaction import Transaction
from konverse.schemas.catalog.objects import DatabaseBroker, Queue
from konverse.schemas.errors import (
    AlreadyExists,
    DialogNotFound,
    InvalidSettings,
    NothingChanged,
    OutcomeUnknown,
    QueueNotFound,
)
from konverse.schemas.system_messages import END_DIALOG
from konverse.spark.write.settings import parse_writer
from konverse.spark.write.sink import plan_of
from tests.kit.commands import CliRunner
from tests.kit.databases import COPIES, Instance, create_ordering, several_databases
from tests.kit.oracle import verify
from tests.kit.pools import STREAM_END, STREAMING, Taker, pool_of
from tests.kit.readme import whole_page
from tests.kit.servers import Servers
from tests.kit.shop import (
    NOTE,
    ORDER,
    ORDER_SERVICE,
    ORDERING,
    RECEIPT,
    SHOP_SERVICE,
    begin,
    connected,
    drain,
    handle,
    pumped,
    receive,
    sent,
    until,
)

pytestmark = pytest.mark.stack

ROUTER = "//sales/Router"


@pytest.fixture
def instance(servers: Servers) -> Iterator[Instance]:
    with several_databases(servers.bootstrap) as made:
        yield made
        assert verify(servers.bootstrap, made.queues()) == []


def test_a_handler_begins_a_dialog_with_another_database(instance: Instance) -> None:
    """The shop's handler asks the west, whose handler answers; both queues are verified together."""
    question = begin(instance.sales, broker_instance=instance.id_of("east"))
    question.send(ORDER, b"for the shop")
    question.flush()

    def answer(transaction: Transaction) -> None:
        for message in transaction:
            transaction.send(message.dialog, RECEIPT, b"ask the others")

    def ask(transaction: Transaction) -> None:
        for message in transaction:
            for _ in range(16):
                transaction.send(transaction.begin(SHOP_SERVICE, ORDER_SERVICE, ORDERING), ORDER, message.body)

    handle(instance["east"], "Orders", answer)
    handle(instance.sales, "Shop", ask)
    with (
        instance["east"].reader("Orders") as east,
        instance["west"].reader("Orders") as west,
        instance.sales.reader("Shop") as shop,
        pumped(east, west, shop),
    ):
        until(lambda: east.conversations + west.conversations == 17, "sixteen dialogs have reached both databases")
        asked = east.conversations - 1, west.conversations
    for database, count in zip(COPIES, asked, strict=True):
        assert count > 0
        bodies = [message.body for message in receive(instance[database], "Orders", count)]
        assert bodies == [b"ask the others"] * count


def test_a_client_transaction_sends_to_several_databases_at_once(instance: Instance) -> None:
    dialogs = [begin(instance.sales, broker_instance=instance.id_of(database)) for database in COPIES]
    with instance.sales.transaction() as transaction:
        for number in range(3):
            for dialog in dialogs:
                transaction.send(dialog, ORDER, b"%d" % number)
    instance.sales.flush()
    for database in COPIES:
        assert [message.body for message in receive(instance[database], "Orders", 3)] == [b"0", b"1", b"2"]


def test_a_pool_shares_its_conversations_among_the_databases(instance: Instance) -> None:
    for database in ("sales", *COPIES):
        admin = instance[database].admin
        admin.create_message_type(STREAM_END)
        admin.create_contract(STREAMING, {ORDER: "INITIATOR", NOTE: "ANY", RECEIPT: "TARGET", STREAM_END: "INITIATOR"})
    for database in COPIES:
        instance[database].admin.alter_service(ORDER_SERVICE, add=[STREAMING])
    takers = [Taker(), Taker()]
    readers = [instance[database].reader("Orders") for database in COPIES]
    with ThreadPoolExecutor(2) as threads:
        work = [threads.submit(reader.run, taker) for reader, taker in zip(readers, takers, strict=True)]
        with pool_of(instance.sales, size=2, max_messages=5, read=True) as pool:
            for number in range(200):
                pool.send(ORDER, b"%d" % number)
        until(lambda: sum(len(taker.finished) for taker in takers) == pool.statistics.begun, "each has ended")
        for reader in readers:
            reader.stop()
        for done in work:
            done.result()
    for reader in readers:
        reader.close()
    bodies = [taker.bodies for taker in takers]
    assert all(bodies)
    assert sorted(int(body) for some in bodies for body in some) == [*range(200)]


def test_a_router_passes_conversations_on_to_another_database(instance: Instance) -> None:
    admin = instance.sales.admin
    admin.create_queue("Routing", partitions=1)
    admin.create_service(ROUTER, queue="Routing", contracts=[ORDERING])
    router = instance.sales.router(ROUTER)(lambda _message: ORDER_SERVICE)
    dialogs = [instance.sales.begin_dialog(SHOP_SERVICE, ROUTER, ORDERING) for _ in range(8)]
    for number, dialog in enumerate(dialogs):
        dialog.send(ORDER, b"%d" % number)
    instance.sales.flush()

    def answer(transaction: Transaction) -> None:
        for message in transaction:
            if message.type == ORDER:
                transaction.send(message.dialog, RECEIPT, b"re " + message.body)
            elif message.type == END_DIALOG:
                transaction.end(message.dialog)

    readers = [instance[database].reader("Orders") for database in COPIES]
    with ThreadPoolExecutor(3) as threads:
        work = [threads.submit(reader.run, answer) for reader in readers]
        work.append(threads.submit(router.run))
        found = receive(instance.sales, "Shop", 8)
        for dialog in dialogs:
            dialog.end()
        instance.sales.flush()
        for reader in readers:
            reader.stop()
        router.stop()
        for done in work:
            done.result()
    for reader in readers:
        reader.close()
    assert {message.dialog.id: message.body for message in found} == {
        dialog.id: b"re %d" % number for number, dialog in enumerate(dialogs)
    }


def test_the_programs_of_the_guide_run(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KONVERSE_INSTANCE", f"i{uuid.uuid4().hex[:10]}")
    names: dict[str, Any] = {}
    exec(compile(whole_page("docs/guide/databases.md", servers, "sales"), "databases.md", "exec"), names)
    for database in ("sales", "depot"):
        names[database].close()
    printed = capsys.readouterr().out.splitlines()
    assert printed == ["b'here are six plates'", "database 'depot' of this instance has service '//depot/Deliveries'"]
    assert names["named"].begin.target.topic.split(".")[1] == "depot"


def test_a_destination_in_another_database_is_followed(instance: Instance) -> None:
    """Outcomes, new ids of sessions and take-overs of pools ask the owner of a target's partition."""
    dialog = begin(instance.sales, broker_instance=instance.id_of("west"))
    there = dialog.begin.target
    catalog = instance.sales.catalog
    assert queue_at(instance.sales._kafka, catalog, there) == instance["west"].catalog.get(Queue, "Orders")
    instance["west"].admin.drop_service(ORDER_SERVICE)
    instance["west"].admin.drop_queue("Orders")
    with pytest.raises(QueueNotFound):
        queue_at(instance.sales._kafka, catalog, there)


def test_a_dialog_is_explained_on_both_sides(instance: Instance) -> None:
    dialog = begin(instance.sales, broker_instance=instance.id_of("west"))
    dialog.send(ORDER, b"waits")
    dialog.flush()
    with instance["west"].reader("Orders") as orders, instance.sales.reader("Shop") as shop, pumped(orders, shop):
        until(lambda: orders.conversations + shop.conversations == 2, "both sides are there")
    for broker, order in ((instance.sales, ["sales", "west"]), (instance["west"], ["west", "sales"])):
        *_, sides = broker.why(dialog.id)
        assert [side.database for side in sides] == order
    with pytest.raises(DialogNotFound, match="no queue of database 'east'"):
        list(instance["east"].why(dialog.id))


def leaked_in(instance: Instance, database: str) -> list[Leaked]:
    return [*instance[database].operations.leaked(older_than=0.5)]


def test_a_dialog_that_waits_for_another_database_is_not_leaked(instance: Instance) -> None:
    dialog = begin(instance.sales, broker_instance=instance.id_of("west"))
    dialog.send(ORDER, b"waits for a long approval")
    dialog.flush()
    with instance["west"].reader("Orders") as orders, instance.sales.reader("Shop") as shop, pumped(orders, shop):
        until(lambda: orders.conversations + shop.conversations == 2, "both sides are there")
    for database in ("sales", "west"):
        assert list(instance[database].operations.leaked(older_than=0)) == []
    handle(instance["west"], "Orders", list)
    for database, role in (("sales", "initiator"), ("west", "target")):
        found = until(partial(leaked_in, instance, database), "both sides are silent")
        assert [(one.role, one.cause) for one in found] == [(role, "silent")]
    with instance["west"].reader("Orders") as orders, instance.sales.reader("Shop") as shop, pumped(orders, shop):
        leaked = instance.sales.operations.leaked(older_than=0.5)
        assert instance.sales.operations.end_leaked(leaked) == [dialog.id]
        until(lambda: orders.conversations + shop.conversations == 0, "both sides are removed")


def test_spark_writes_where_the_routes_lead(instance: Instance, servers: Servers) -> None:
    instance.route_to("west", "West")
    options = {
        "bootstrap": servers.bootstrap,
        "instance": instance.sales.settings.instance,
        "database": "sales",
        "from_service": SHOP_SERVICE,
        "to_service": ORDER_SERVICE,
        "contract": ORDERING,
    }
    places = plan_of(parse_writer(options)).services[ORDER_SERVICE]
    assert {instance.sales.catalog.database_of(place.topic) for place in places} == {"west"}


def test_all_databases_are_verified_together(
    instance: Instance, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KONVERSE_INSTANCE", instance.sales.settings.instance)
    sent(instance.sales, b"0", b"1")
    for database in COPIES:
        drain(instance[database], "Orders")
    options = ["--kafka", f"kafka://{servers.bootstrap}", "--database", "sales"]
    result = CliRunner().invoke(app, ["verify", "--all-databases", *options])
    assert result.exit_code == 0, result.stdout
    for database in COPIES:
        assert f"{database}/Orders/0" in result.stdout
    assert all(name in result.stdout for name in COUNTED)
    refused = CliRunner().invoke(app, ["verify", "Shop", "--all-databases", *options])
    assert (refused.exit_code, "leave out the names" in refused.output) == (2, True)


@pytest.mark.parametrize(
    ("clauses", "error", "words"),
    [
        ({}, NothingChanged, "names nothing to alter"),
        ({"broker_id": "west"}, InvalidSettings, "'west' is not a UUID"),
        ({"broker_id": ""}, InvalidSettings, "'' is not a UUID"),
        ({"new_broker": True, "broker_id": uuid.uuid4()}, InvalidSettings, "leave out broker_id, or new_broker"),
    ],
)
def test_clauses_of_alter_database_that_are_refused(
    instance: Instance, clauses: dict[str, Any], error: type[Exception], words: str
) -> None:
    before = instance.id_of("west")
    with pytest.raises(error, match=words):
        instance["west"].admin.alter_database(**clauses)
    assert instance.id_of("west") == before


def test_the_id_of_a_database_is_in_its_catalog_from_its_first_object_on(instance: Instance, servers: Servers) -> None:
    """A program that moved here from elsewhere keeps the id that its partners' routes name."""
    known, name = uuid.uuid4(), instance.sales.settings.instance
    with connected(servers.bootstrap, "north", instance=name) as north:
        assert north.catalog.get_known(DatabaseBroker, "north") is None
        derived = north.catalog.broker_id
        create_ordering(north)
        assert north.catalog.get_known(DatabaseBroker, "north") == DatabaseBroker("north", str(derived))
        assert north.admin.alter_database(broker_id=str(known).upper()).broker_id == str(known)
        north.admin.create_queue("Orders", partitions=1)
        north.admin.create_service(ORDER_SERVICE, queue="Orders", contracts=[ORDERING])
        instance.sales.catalog.refresh()
        dialog = begin(instance.sales, broker_instance=known)
        assert instance.place_of(dialog) == "north"


def test_two_databases_without_objects_cannot_have_one_id(instance: Instance, servers: Servers) -> None:
    name, known = instance.sales.settings.instance, uuid.uuid4()
    with (
        connected(servers.bootstrap, "a", instance=name) as a,
        connected(servers.bootstrap, "b", instance=name) as b,
    ):
        a.admin.alter_database(broker_id=known)
        with pytest.raises(AlreadyExists, match="that of database 'a' is enabled and has the same id"):
            b.admin.alter_database(broker_id=known)


def test_a_new_broker_keeps_its_id_until_all_conversations_are_removed(instance: Instance) -> None:
    """No reader removes them. All partitions got the instruction, and the statement is repeated when there is one."""
    west, old = instance["west"], instance.id_of("west")
    west.admin.create_queue("Later", partitions=1)
    west.admin.create_service("//sales/Later", queue="Later", contracts=[ORDERING])
    for service in (ORDER_SERVICE, "//sales/Later"):
        instance.sales.catalog.refresh()
        dialog = instance.sales.begin_dialog(SHOP_SERVICE, service, ORDERING, broker_instance=old)
        dialog.send(ORDER, b"x")
    instance.sales.flush()
    with pytest.raises(OutcomeUnknown, match="no reader of its queue runs"):
        west.admin.alter_database(new_broker=True, timeout=0.5)
    assert instance.id_of("west") == old
    with west.reader("Later") as later, pumped(later):
        until(lambda: later.conversations == 0 and later.owners, "the instruction waited for a reader")
        with west.reader("Orders") as orders, pumped(orders):
            assert west.admin.alter_database(new_broker=True, timeout=30).broker_id != str(old)
            assert orders.conversations == 0
