"""The catalog's rules for receiving (behaviours 16, 132, 133)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.homes import ServiceMoves
from konverse.bridge.catalog.judge import CatalogJudge, Rules
from konverse.bridge.validation.validator import BodyFinding, EncodedRule, Validator
from konverse.dialog.state.endpoint import Terms
from konverse.schemas.catalog.objects import CatalogObject, Contract, MessageType, Queue, Service, Validation
from konverse.schemas.catalog.priorities import BrokerPriority
from konverse.schemas.catalog.schema_collections import XmlSchemaCollection
from konverse.schemas.errors import ServiceAltered, ValidatorUnavailable
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import FAULT_CHARACTERS_MAX
from konverse.schemas.system_messages import Rejection

INITIATOR, TARGET = Role.INITIATOR, Role.TARGET


class Objects:
    """Stands in for a catalog and counts the lookups."""

    def __init__(self, *objects: CatalogObject) -> None:
        self.objects = {(type(each), each.name): each for each in objects}
        self.version = 0
        self.asked = 0
        self.news: dict[Any, CatalogObject] = {}
        """Changes of other processes, visible after a read."""

    def refresh(self) -> None:
        self.objects.update(self.news)

    def all(self, kind: type) -> list[Any]:
        self.refresh()
        return [each for (other, _), each in self.objects.items() if other is kind]

    def find(self, kind: type, name: str) -> Any:
        self.asked += 1
        return self.objects.get((kind, name))

    get = find

    def known(self, kind: type) -> list[Any]:
        self.asked += 1
        return [each for (its, _), each in self.objects.items() if its is kind]


@pytest.fixture
def catalog() -> Objects:
    contract = Contract.of("ordering", {"order": "INITIATOR", "receipt": "TARGET", "note": "ANY"})
    return Objects(
        contract,
        Contract.of("other", {"order": "ANY"}),
        Service.of("orders", "Orders", ["ordering"]),
        Service.of("shop", "Shop", []),
        *(MessageType(name) for name in ("order", "receipt", "note", "strange")),
    )


@pytest.fixture
def judge(catalog: Objects) -> CatalogJudge:
    return CatalogJudge(cast("Catalog", catalog), Validator())


AT_TARGET = Terms("orders", "shop", "ordering")
AT_HOME = Terms("shop", "orders", "ordering")


@pytest.mark.parametrize(
    ("terms", "role", "message_type", "reason"),
    [
        (AT_TARGET, TARGET, "order", 0),
        (AT_TARGET, TARGET, "note", 0),
        (AT_HOME, INITIATOR, "receipt", 0),
        (AT_HOME, INITIATOR, "note", 0),
        (Terms("orders", "shop", "gone"), TARGET, "order", 8425),
        (Terms("orders", "shop", "other"), TARGET, "order", 8408),
        (Terms("shop", "orders", "other"), INITIATOR, "order", 0),
        (AT_TARGET, TARGET, "gone", 8428),
        (AT_TARGET, TARGET, "strange", 8498),
        (AT_TARGET, TARGET, "receipt", 8457),
        (AT_HOME, INITIATOR, "order", 8437),
    ],
)
def test_the_reason_is_the_number_of_the_originals_error(
    judge: CatalogJudge, terms: Terms, role: Role, message_type: str, reason: int
) -> None:
    assert judge.verdict(terms, role, message_type, b"") == (Rejection(reason) if reason else None)


def test_a_body_is_looked_at_when_its_type_says_so(catalog: Objects, judge: CatalogJudge) -> None:
    catalog.objects[MessageType, "note"] = MessageType("note", Validation.WELL_FORMED_XML)
    catalog.objects[MessageType, "order"] = MessageType("order", Validation.EMPTY)
    assert [judge.examines(name) for name in ("note", "order", "receipt", "gone")] == [True, True, False, True]
    assert judge.verdict(AT_TARGET, TARGET, "note", b"<a/>") is None
    assert judge.verdict(AT_TARGET, TARGET, "note", b"a") == Rejection(9615, "syntax error: line 1, column 0")
    assert judge.verdict(AT_HOME, INITIATOR, "note", b"a") == Rejection(9616, "syntax error: line 1, column 0")
    assert judge.verdict(AT_TARGET, TARGET, "order", b"a") == Rejection(8430, "it has a body of 1 byte")


def test_a_side_has_the_level_of_the_nearest_priority_asked_for_once(catalog: Objects, judge: CatalogJudge) -> None:
    names = "ordering", "orders", "shop"
    assert judge.level(*names) == 5
    priority = BrokerPriority("urgent", contract="ordering", level=9)
    catalog.objects[BrokerPriority, "urgent"] = priority
    asked = catalog.asked
    assert (judge.level(*names), catalog.asked) == (5, asked), "nobody has heard of a change"
    catalog.version += 1
    assert judge.changed()
    assert (judge.level(*names), judge.level("other", "orders", "shop")) == (9, 5)


def test_the_catalog_is_asked_once_until_it_changes(catalog: Objects, judge: CatalogJudge) -> None:
    judge.verdict(AT_TARGET, TARGET, "note", b"")
    asked = catalog.asked
    judge.verdict(AT_TARGET, TARGET, "note", b"")
    assert (catalog.asked, judge.changed()) == (asked, False)
    catalog.objects[MessageType, "note"] = MessageType("note", Validation.EMPTY)
    catalog.version = 1
    assert (judge.changed(), judge.changed()) == (True, False)
    assert judge.verdict(AT_TARGET, TARGET, "note", b"a") == Rejection(8430, "it has a body of 1 byte")


class Findings:
    """Stands in for a validator."""

    def __init__(self, finding: BodyFinding | None) -> None:
        self.finding = finding
        self.seen: list[bytes] = []

    def validate(self, _known: EncodedRule, body: bytes) -> BodyFinding:
        self.seen.append(body)
        if self.finding is None:
            raise ValidatorUnavailable("lxml is missing")
        return self.finding


@pytest.mark.parametrize(
    ("validation", "finding", "at_target", "at_home"),
    [
        (Validation.VALID_XML, BodyFinding(""), 0, 0),
        (Validation.VALID_XML, BodyFinding("no order"), 9615, 9616),
        (Validation.JSON_SCHEMA, BodyFinding("no order"), 8430, 8430),
        (Validation.AVRO, BodyFinding("too slow", examined=False), 9704, 9704),
        (Validation.VALID_XML, BodyFinding("too slow", examined=False), 9704, 9704),
    ],
)
def test_a_finding_of_the_validator_is_reported_with_the_error_number_of_service_broker(
    catalog: Objects, validation: Validation, finding: BodyFinding, at_target: int, at_home: int
) -> None:
    catalog.objects[XmlSchemaCollection, "c"] = XmlSchemaCollection("c", ("<a/>",))
    catalog.objects[MessageType, "note"] = MessageType("note", validation, "c", "{}")
    validator = Findings(finding)
    judge = CatalogJudge(cast("Catalog", catalog), cast("Validator", validator))
    assert judge.verdict(AT_TARGET, TARGET, "note", b"body") == (
        Rejection(at_target, finding.fault) if at_target else None
    )
    assert judge.verdict(AT_HOME, INITIATOR, "note", None) == (Rejection(at_home, finding.fault) if at_home else None)
    assert validator.seen == [b"body", b""]


def test_a_body_without_an_available_validator_gets_no_verdict(
    catalog: Objects, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.objects[MessageType, "note"] = MessageType("note", Validation.AVRO, schema='"long"')
    judge = CatalogJudge(cast("Catalog", catalog), cast("Validator", Findings(None)))
    for _ in range(2):
        with pytest.raises(ValidatorUnavailable):
            judge.verdict(AT_TARGET, TARGET, "note", b"body")
    assert caplog.text.count("lxml is missing") == 1


def test_a_partition_whose_messages_nobody_can_validate_is_claimed_seldom(catalog: Objects) -> None:
    catalog.objects[MessageType, "note"] = MessageType("note", Validation.AVRO, schema='"long"')
    validator = Findings(None)
    judge = CatalogJudge(cast("Catalog", catalog), cast("Validator", validator))
    pauses = []
    for _ in range(7):
        with pytest.raises(ValidatorUnavailable):
            judge.verdict(AT_TARGET, TARGET, "note", b"body")
        pauses.append(judge.pause_s)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    validator.finding = BodyFinding("")
    judge.verdict(AT_TARGET, TARGET, "note", b"body")
    assert judge.pause_s == 0


def test_a_prediction_takes_what_it_cannot_validate_for_accepted(catalog: Objects) -> None:
    """The command of an operator works on a machine without the validating libraries."""
    catalog.objects[MessageType, "note"] = MessageType("note", Validation.AVRO, schema='"long"')
    judge = CatalogJudge(cast("Catalog", catalog), cast("Validator", Findings(None)), predicts=True)
    assert judge.verdict(AT_TARGET, TARGET, "note", b"body") is None


def test_refusals_of_one_kind_are_logged_seldom(catalog: Objects, caplog: pytest.LogCaptureFixture) -> None:
    judge = CatalogJudge(cast("Catalog", catalog), cast("Validator", Findings(None)))
    for name in ("nothing", "nothing", "none"):
        assert judge.verdict(AT_TARGET, TARGET, name, b"") == Rejection(8428)
    assert [line.split(" from ")[0] for line in caplog.messages] == [
        "messages of type 'nothing'", "messages of type 'none'"
    ]  # fmt: skip


def queue(name: str) -> Queue:
    return Queue(name, f"k.d.{name}", "queue", 2, name.encode().ljust(16), b"", b"")


def test_a_service_that_has_moved_was_not_dropped(catalog: Objects, judge: CatalogJudge) -> None:
    catalog.objects[Service, "orders"] = Service("orders", "Later", ("ordering",), ("Orders",))
    assert judge.has(queue("Orders"), "orders")
    assert judge.has(queue("Later"), "orders")
    assert not judge.has(queue("Shop"), "orders")
    assert not judge.has(queue("Orders"), "nobody")


def test_the_catalog_is_read_again_before_a_moved_service_counts_as_dropped(
    catalog: Objects, judge: CatalogJudge
) -> None:
    """Its conversations may arrive before the change of the catalog."""
    catalog.news[Service, "orders"] = Service("orders", "Later", ("ordering",), ("Orders",))
    assert judge.has(queue("Later"), "orders")


def test_both_queues_know_where_a_service_moves(catalog: Objects, judge: CatalogJudge) -> None:
    before, later = queue("Orders"), queue("Later")
    catalog.objects |= {(Queue, each.name): each for each in (before, later)}
    catalog.objects[Service, "orders"] = Service("orders", "Later", ("ordering",), ("Dropped", "Orders"))
    assert dict(judge.departed_services(before)) == {"orders": later}
    assert dict(judge.departed_services(later)) == {}
    assert judge.former_queues(later) == [before]
    assert judge.former_queues(before) == []


def test_a_receive_for_a_service_that_moved_raises_an_error_that_names_its_new_queue(
    catalog: Objects, judge: CatalogJudge
) -> None:
    before, later = queue("Orders"), queue("Later")
    catalog.objects |= {(Queue, each.name): each for each in (before, later)}
    looked_after: list[Queue] = []
    rules = Rules(lambda *_: None, judge, None, looked_after.append)
    moves = ServiceMoves(rules, before)
    moves.check("orders")
    catalog.news[Service, "orders"] = Service("orders", "Later", ("ordering",), ("Orders",))
    moves.update(moves.read(), {})
    with pytest.raises(ServiceAltered, match="'Later'") as error:
        moves.check("orders")
    assert error.value.number == 8468
    moves.check("shop")
    assert moves.places["orders"](b"group").topic == later.topic
    assert looked_after == []
    ServiceMoves(rules, later)
    assert looked_after == [before]


def test_the_stored_text_of_a_fault_is_printable_and_bounded(catalog: Objects) -> None:
    catalog.objects[XmlSchemaCollection, "c"] = XmlSchemaCollection("c", ("<a/>",))
    catalog.objects[MessageType, "note"] = MessageType("note", Validation.VALID_XML, "c")
    findings = Findings(BodyFinding("\x1b[31m\n" + "x" * 10_000))
    why = CatalogJudge(cast("Catalog", catalog), cast("Validator", findings)).verdict(AT_TARGET, TARGET, "note", b"a")
    assert why is not None
    assert (why.fault[:8], len(why.fault)) == ("?[31m?xx", FAULT_CHARACTERS_MAX)
