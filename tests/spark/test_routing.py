"""Spark routes orders by content to the services of regions, and their answers come back."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from konverse.bridge.broker import Broker
from konverse.routing.classifiers import json_path
from konverse.routing.documents import read_redirect
from konverse.routing.routed import Routed
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidSettings, OutcomeUnknown, RoutingTableNotFound
from konverse.schemas.origins import ErrorOrigin, origin_of
from konverse.schemas.system_messages import END_DIALOG, ERROR, read_error
from konverse.spark import route, route_arrow, routing_table
from konverse.spark.receive.report_board import note
from tests.kit.builders import Scribe, identifier
from tests.kit.regions import BY_REGION, REGIONS, answer_in, heard, kinds, open_regions, service_of
from tests.kit.servers import Servers
from tests.kit.shop import ORDER, ORDER_SERVICE, RECEIPT, SHOP_SERVICE, begin, drain, handle, sent, until
from tests.spark.conftest import NewLog
from tests.spark.logs import ORDERS

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

IDLE_S = 2.0

Route = Callable[..., Routed]


@pytest.fixture
def regions(shop: Broker) -> Broker:
    """The shop, and services of three regions."""
    open_regions(shop)
    return shop


@pytest.fixture
def place(servers: Servers, database: str) -> dict[str, Any]:
    """Arguments of `konverse.connect`."""
    return {"kafka": f"kafka://{servers.bootstrap}", "database": database, "timeout": IDLE_S}


@pytest.fixture
def by_region(spark: SparkSession, place: dict[str, Any]) -> Route:
    """Route the orders by their region."""
    return lambda classifier=BY_REGION, **options: route(spark, "Orders", classifier, **place, **options)


def test_orders_go_to_their_regions_and_answers_come_back(regions: Broker, by_region: Route) -> None:
    dialogs = {region: [sent(regions, f"{region} {n}".encode(), b"more") for n in range(3)] for region in REGIONS}
    to = {service_of(region): 6 for region in REGIONS}
    assert by_region() == Routed(forwarded=9, followed=9, targets=to)
    for region in REGIONS:
        got = answer_in(regions, region, 6)
        assert got == Counter([b"more"] * 3 + [f"{region} {n}".encode() for n in range(3)])
    assert by_region() == Routed(replied=18)
    answers = heard(regions, 18)
    assert kinds(answers) == {"Receipt": 18}
    for region, some in dialogs.items():
        for number, dialog in enumerate(some):
            mine = [message.body.decode() for message in answers if message.dialog.id == dialog.id]
            assert mine == [f"{region} has {region} {number}", f"{region} has more"]
    again = dialogs["south"][1]
    again.send(ORDER, b"north, by its words")
    again.end()
    regions.flush()
    assert drain(regions, "Shop") == [], "it passes the end on"
    assert by_region() == Routed(followed=1, ended=1, targets={service_of("south"): 1}), "the first one has decided"
    last = drain(regions, "South")
    assert [(message.type, message.body) for message in last] == [(ORDER, b"north, by its words"), (END_DIALOG, b"")]


def test_ends_and_errors_of_the_targets_come_back(regions: Broker, by_region: Route) -> None:
    fine, refused = sent(regions, b"north 1"), sent(regions, b"west 1")
    by_region()
    answer_in(regions, "north", 1, end=True)
    answer_in(regions, "west", 1, error=404)
    assert by_region() == Routed(replied=1, ended=2)
    messages = {(message.dialog.id, message.type): message.body for message in heard(regions, 3)}
    assert {*messages} == {(fine.id, RECEIPT), (fine.id, END_DIALOG), (refused.id, ERROR)}
    code, description = read_error(messages[refused.id, ERROR])
    assert code == 10001
    assert origin_of(description) == ErrorOrigin(service_of("west"), 404, "not in the west")


def test_a_message_for_no_known_service_ends_its_conversation_with_error_1(regions: Broker, by_region: Route) -> None:
    known, unknown = sent(regions, b"north 1"), sent(regions, b"nowhere")
    expression = f"CASE WHEN body LIKE 'n%' AND body <> 'nowhere' THEN {BY_REGION} END"
    assert by_region(expression) == Routed(forwarded=1, rejected=1, targets={service_of("north"): 1})
    (message,) = heard(regions, 1)
    assert (message.dialog.id, message.type) == (unknown.id, ERROR)
    assert read_error(message.body) == (1, f"No service is known for this message of type {ORDER!r}.")
    assert [one.body for one in drain(regions, "North")] == [b"north 1"]
    assert known.id != unknown.id


def redirected_contract(regions: Broker) -> str:
    """A contract of orders with the redirection, accepted by the router and the south."""
    contract = "//sales/Redirected"
    regions.admin.create_message_type("RedirectTo")
    regions.admin.create_contract(contract, {ORDER: "INITIATOR", RECEIPT: "TARGET", "RedirectTo": "TARGET"})
    for service in (ORDER_SERVICE, service_of("south")):
        regions.admin.alter_service(service, add=[contract])
    return contract


def test_a_redirection_names_the_service_and_its_dialog_begins_anew(regions: Broker, by_region: Route) -> None:
    contract = redirected_contract(regions)
    dialog = regions.begin_dialog("//sales/ShopService", ORDER_SERVICE, contract)
    dialog.send(ORDER, b"south 1")
    dialog.flush()
    assert by_region(mode="redirect") == Routed(redirected=1, targets={service_of("south"): 1})
    told, end = heard(regions, 2)
    assert (told.type, end.type) == ("RedirectTo", END_DIALOG)
    target = read_redirect(told.body)
    assert target == Target(service_of("south"))
    direct = regions.begin_dialog("//sales/ShopService", target.service, contract)
    direct.send(ORDER, b"south 1")
    direct.flush()
    assert answer_in(regions, "south", 1) == Counter([b"south 1"])
    assert [message.body for message in heard(regions, 1)] == [b"south has south 1"]


@pytest.mark.usefixtures("transmitting")
def test_a_topic_that_was_copied_into_the_queue_is_redirected_by_tasks(
    spark: SparkSession, servers: Servers, regions: Broker, place: dict[str, Any], new_log: NewLog
) -> None:
    log, scribe = new_log(), Scribe("writer")
    bodies = [f"{region} {number}".encode() for number in range(2) for region in REGIONS]
    for body in bodies:
        log.write(scribe.message(ORDERS, identifier("a conversation")), body=body, key=body.split()[0])
    made = log.read(spark).select("key", "body")
    into = {"from_service": SHOP_SERVICE, "contract": redirected_contract(regions), "message_type": ORDER}
    options = {"bootstrap": servers.bootstrap, "database": place["database"], "to_service": ORDER_SERVICE, **into}
    made.write.format("konverse").options(**options).mode("append").save()

    services = [service_of(region) for region in REGIONS]
    redirected = Routed(redirected=3, dropped=3, targets=dict.fromkeys(services, 1))
    assert route_arrow(spark, "Orders", arrow_by_region, mode="redirect", **place) == redirected
    messages = heard(regions, 6)
    assert kinds(messages) == {"RedirectTo": 3, "EndDialog": 3}
    told = {message.dialog.id: read_redirect(message.body) for message in messages if message.type == "RedirectTo"}
    assert sorted(target.service for target in told.values()) == sorted(services)
    assert {message.dialog.id for message in messages if message.type == END_DIALOG} == {*told}


def test_a_contract_that_has_no_redirection_is_named(
    regions: Broker, by_region: Route, caplog: pytest.LogCaptureFixture
) -> None:
    sent(regions, b"south 1")
    assert by_region(mode="redirect") == Routed(failed=5)
    assert "'RedirectTo'" in caplog.text
    assert len([one for partition in regions.operations.suspended("Orders") for one in partition]) == 1


def test_a_function_from_frame_to_frame_classifies(spark: SparkSession, regions: Broker, by_region: Route) -> None:
    known = spark.createDataFrame(
        [("north", service_of("north")), ("south", service_of("south"))], "region string, to_service string"
    )

    def classify(frame: DataFrame) -> DataFrame:
        named = frame.withColumn("region", f.split_part(f.col("body").cast("string"), f.lit(" "), f.lit(1)))
        return named.join(known, "region", "left").withColumn("reason", f.lit("we are not there"))

    for body in (b"north 1", b"south 1", b"south 2", b"east 1"):
        sent(regions, body)
    expected = {service_of("north"): 1, service_of("south"): 2}
    assert by_region(classify) == Routed(forwarded=3, rejected=1, targets=expected)
    (message,) = heard(regions, 1)
    assert read_error(message.body) == (1, "we are not there")


def test_a_table_that_changes_is_read_again(spark: SparkSession, regions: Broker, by_region: Route) -> None:
    regions.admin.create_routing_table("Regions", {name: service_of(name) for name in ("north", "south")})
    classify = routing_table("Regions", "split_part(CAST(body AS STRING), ' ', 1)")
    first, unknown = sent(regions, b"north 1"), sent(regions, b"west 1")
    assert by_region(classify) == Routed(forwarded=1, rejected=1, targets={service_of("north"): 1})
    (message,) = heard(regions, 1)
    assert message.dialog.id == unknown.id
    assert read_error(message.body) == (1, "Routing table 'Regions' (version 1) has no service for key 'west'.")
    regions.admin.alter_routing_table(
        "Regions", set=dict.fromkeys(("north", "west"), service_of("west")), remove=["south"]
    )
    first.send(ORDER, b"north 2")
    sent(regions, b"north 3")
    sent(regions, b"west 2")
    assert by_region(classify) == Routed(
        forwarded=2, followed=1, targets={service_of("north"): 1, service_of("west"): 2}
    )
    assert sorted(one.body for one in drain(regions, "North")) == [b"north 1", b"north 2"]
    assert sorted(one.body for one in drain(regions, "West")) == [b"north 3", b"west 2"]


def arrow_by_region(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The service of each order by its first word."""
    services = [service_of(body.decode().split()[0]) for body in batch.column("body").to_pylist()]
    return pa.RecordBatch.from_pydict({"receipt": batch.column("receipt"), "to_service": services})


def test_a_function_over_arrow_classifies_in_tasks(spark: SparkSession, regions: Broker, place: dict[str, Any]) -> None:
    for number in range(10):
        for region in REGIONS:
            sent(regions, f"{region} {number}".encode(), b"more")
    expected = Routed(forwarded=30, followed=30, targets={service_of(region): 20 for region in REGIONS})
    assert route_arrow(spark, "Orders", arrow_by_region, **place) == expected
    for region in REGIONS:
        answer_in(regions, region, 20)
    assert route_arrow(spark, "Orders", arrow_by_region, **place) == Routed(replied=60)
    assert kinds(heard(regions, 60)) == {"Receipt": 60}


def test_conversations_that_cannot_be_routed_are_suspended_and_the_others_are_routed(
    spark: SparkSession, regions: Broker, by_region: Route, caplog: pytest.LogCaptureFixture
) -> None:
    bodies = [b"north 1", b"nowhere 1", b"self 1", b"twice 1", b"raise 1", b"empty 1", b"west 1"]
    dialogs = {body: sent(regions, body) for body in bodies}
    word = f.split_part(f.col("body").cast("string"), f.lit(" "), f.lit(1))
    raised = f.when(word == "raise", f.raise_error(f.lit("no classifier for this"))).cast("string")

    def classify(frame: DataFrame) -> DataFrame:
        service = f.when(word == "self", ORDER_SERVICE).when(word == "empty", "").otherwise(f.expr(BY_REGION))
        named = frame.withColumn("to_service", f.coalesce(raised, service))
        return named.unionByName(named.where(word == "twice"))

    assert by_region(classify) == Routed(
        forwarded=2, failed=25, targets={service_of("north"): 1, service_of("west"): 1}
    )
    left = {one.conversation for partition in regions.operations.suspended("Orders") for one in partition}
    assert left == {dialogs[body].id for body in bodies[1:-1]}
    for said in (
        f"ServiceNotFound: there is no service {service_of('nowhere')!r}",
        f"was classified as one for {ORDER_SERVICE!r}, which is the router that received it",
        "the classifier answered 2 times for receipt",
        "no classifier for this",
        "the classifier answered with an empty string for receipt",
    ):
        assert said in caplog.text, said
    assert str(dialogs[b"twice 1"].id) in caplog.text
    open_regions(regions, ("nowhere",))
    with pytest.raises(OutcomeUnknown):  # no reader receives; one that does within ten minutes follows the instruction
        regions.operations.resume(dialogs[b"nowhere 1"].id, timeout=0.1)
    assert by_region() == Routed(forwarded=1, targets={service_of("nowhere"): 1}), "nothing is lost"


def test_a_service_on_the_queue_of_the_router_is_refused(
    regions: Broker, by_region: Route, caplog: pytest.LogCaptureFixture
) -> None:
    regions.admin.create_service("//sales/Also", queue="Orders", contracts=["//sales/Ordering"])
    sent(regions, b"also 1")
    assert by_region() == Routed(failed=5)
    assert "'//sales/Also', a service on queue 'Orders'" in caplog.text


@pytest.mark.parametrize("classifier", [routing_table("Regionz", "key"), json_path("$.region", table="Regionz")])
def test_a_table_that_does_not_exist_is_refused_before_anything_is_received(
    regions: Broker, by_region: Route, classifier: Any
) -> None:
    sent(regions, b"north 1")
    with pytest.raises(RoutingTableNotFound, match="Regionz"):
        by_region(classifier)
    assert by_region() == Routed(forwarded=1, targets={service_of("north"): 1})


def test_a_table_is_refused_for_tasks_before_anything_is_received(
    spark: SparkSession, regions: Broker, by_region: Route, place: dict[str, Any]
) -> None:
    sent(regions, b"north 1")
    refusal = "routing table 'Regions' of the catalog is joined by Spark, which tasks cannot do: give it to `route`"
    with pytest.raises(InvalidSettings, match=refusal):
        route_arrow(spark, "Orders", cast("Any", routing_table("Regions", "key")), **place)
    assert by_region() == Routed(forwarded=1, targets={service_of("north"): 1})


def test_a_classifier_of_a_wrong_shape_does_nothing(regions: Broker, by_region: Route) -> None:
    sent(regions, b"north 1")
    with pytest.raises(InvalidSettings, match="no column 'to_service'"):
        by_region(lambda frame: frame)
    assert by_region() == Routed(forwarded=1, targets={service_of("north"): 1})


def test_a_mode_that_does_not_exist_is_refused(by_region: Route, regions: Broker) -> None:
    with pytest.raises(InvalidSettings, match="'sideways'"):
        by_region(mode="sideways")


def test_counts_are_shown_behind_each_batch(regions: Broker, by_region: Route) -> None:
    for number in range(4):
        sent(regions, b"north %d" % number)
    shown: list[Routed] = []
    done = by_region(progress=shown.append, rows=1)
    assert shown[-1] == done
    assert len(shown) == 4


def test_counts_of_tasks_are_shown_while_they_work(
    spark: SparkSession, servers: Servers, regions: Broker, place: dict[str, Any], tmp_path: Path
) -> None:
    seen, shown = tmp_path / "seen", list[Routed]()

    def heard_of_it(routed: Routed) -> None:
        shown.append(routed)
        seen.touch()

    def waiting(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.column("body").to_pylist() != [b"north first"]:
            until(seen.exists, "the driver has shown what was done before")
        return arrow_by_region(batch)

    group = begin(regions)
    dialogs = [group, *(begin(regions, related_to=group) for _ in range(2))]
    for dialog, body in zip(dialogs, (b"north first", b"west second", b"west third"), strict=True):
        dialog.send(ORDER, body)
        regions.flush()
    done = route_arrow(spark, "Orders", waiting, rows=1, progress=heard_of_it, **place)
    assert done == Routed(forwarded=3, targets={service_of("north"): 1, service_of("west"): 2})
    assert shown[0].targets == {service_of("north"): 1}
    assert shown[-1] == done
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    groups = [group.group_id for group in admin.list_consumer_groups().result().valid]
    assert not [name for name in groups if place["database"] in name and "-progress-" in name], "nothing is left"


def test_targets_that_do_not_fit_beside_an_offset_are_left_out_of_the_line() -> None:
    few = Routed(forwarded=1, targets={"//one": 1})
    assert Routed(**json.loads(note(few))) == few
    many = Routed(forwarded=900, targets={f"//service/{number}": 1 for number in range(900)})
    assert Routed(**json.loads(note(many))) == Routed(forwarded=900)


def test_a_router_behind_a_router_passes_both_origins_on(
    spark: SparkSession, regions: Broker, by_region: Route, place: dict[str, Any]
) -> None:
    open_regions(regions, ("hub",))
    dialog = sent(regions, b"west 1")
    assert by_region(f"'{service_of('hub')}'").forwarded == 1
    assert route(spark, "Hub", BY_REGION, **place).forwarded == 1
    answer_in(regions, "west", 1, error=5)
    assert route(spark, "Hub", BY_REGION, **place).ended == 1
    assert by_region().ended == 1
    (message,) = heard(regions, 1)
    assert message.dialog.id == dialog.id
    outer = origin_of(read_error(message.body)[1])
    assert outer is not None
    assert (outer.service, outer.code) == (service_of("hub"), 10001)
    assert origin_of(outer.description) == ErrorOrigin(service_of("west"), 5, "not in the west")


def test_a_conversation_can_be_ended_by_hand(regions: Broker, by_region: Route) -> None:
    sent(regions, b"north 1")
    by_region()
    handle(regions, "North", lambda transaction: transaction.end(transaction.dialog))
    assert by_region() == Routed(ended=1)
