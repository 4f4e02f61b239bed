"""The table of rights in docs/operating.md, and the rights that the tests grant (tests/kit/rights.py)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pytest
from confluent_kafka.admin import AclOperation

from konverse.bridge.admin.rights import GROUP, TOPIC, Right
from tests.architecture.tree import ROOT
from tests.kit import rights
from tests.kit.guarded import in_words
from tests.kit.rights import LOST, NEW, NORTH, ORDERS, SHOP, TRANSMISSION, logs

HEAD: Final = "| Principal | Resource | Operation |"
INHERITS: Final = re.compile(r"(?:the rights|those) of (.+?)(?:[,;] and |$)")
WRITE_ON: Final = "WRITE on "


class Row(NamedTuple):
    """A row of the table; the principal of the rows above stands in it where the page leaves it out."""

    principal: str
    resource: str
    operations: tuple[AclOperation, ...]


class Kind(NamedTuple):
    """A kind of process in tests/kit/rights.py."""

    principal: str
    """Its name on the page."""
    granted: list[Right]
    queue: str = ORDERS
    """The queue that "the queue" means on the page."""
    answers: tuple[str, ...] = ()
    """Queues to which the handlers of `queue` answer."""
    without: tuple[str, ...] = ()
    """Resources on the page that only another case needs."""
    renews: bool = False
    """Whether it takes a new id while messages are unacknowledged."""


def _rows() -> Iterator[Row]:
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    principal = ""
    for line in page.split(HEAD, 1)[1].splitlines()[2:]:
        if not line.startswith("|"):
            return
        name, resource, operations = (cell.strip() for cell in line.strip("|").split(" | "))
        principal = name or principal
        yield Row(principal, resource, tuple(AclOperation[one] for one in operations.split(", ") if one.strip(" |")))


ROWS: Final = [*_rows()]

READER: Final = "a reader of a queue"
SENDER: Final = "a process that sends"
ADMINISTRATOR: Final = "an administrator (`create_…`, `alter_…`, `drop_…`)"
VERIFY: Final = "`konverse verify`"
SPARK_READS: Final = "Spark, reading (`spark.read`)"
SPARK_WRITES: Final = "Spark, writing (`df.write`)"
SPARK_ROUTES: Final = "Spark, routing (`route`, `route_arrow`)"

PARENTS: Final[dict[str, Callable[[Kind], Kind]]] = {
    "a sender": lambda kind: kind._replace(principal=SENDER),
    "a reader": lambda kind: kind._replace(principal=READER, queue=TRANSMISSION),
    "a reader of its queue": lambda kind: kind._replace(principal=READER),
    "a reader of the queue": lambda kind: kind._replace(principal=READER),
    "a reader of the queue of its own service": lambda kind: kind._replace(principal=READER, queue=SHOP),
    "`konverse verify`": lambda kind: kind._replace(principal=VERIFY),
    "`konverse verify` for all queues of the database": lambda kind: kind._replace(principal=VERIFY),
    "a router": lambda kind: kind._replace(principal="a router"),
    "Spark when it reads": lambda kind: kind._replace(principal=SPARK_READS),
    "Spark when it writes": lambda kind: kind._replace(principal=SPARK_WRITES),
}
"""Whose rights a principal has too, in the words of the page."""

OF_NEW_ID: Final = "data, journal and snapshot topics of those queues for which it has unacknowledged messages"
"""The beginning of a resource that a sender needs only when it takes a new id."""

RESOURCES: Final[dict[str, Callable[[Kind], tuple[str, ...]]]] = {
    "data topics `I.D.QUEUE` of the queues to which it sends": lambda _: (ORDERS, SHOP),
    "data topic `I.D.QUEUE`": lambda kind: (kind.queue,),
    "topics `I.D.QUEUE.queue.journal` and": lambda kind: logs(kind.queue)[1:],
    "topics `I.transmission.queue.journal` and": lambda _: logs(TRANSMISSION)[1:],
    "data topics of the queues to which its handlers answer": lambda kind: kind.answers,
    "data topics of the queues to which transactions send": lambda _: (ORDERS, SHOP),
    "data topics of its targets' queues": lambda _: (NORTH,),
    "data, journal and snapshot topic of the queue of its own service": lambda _: logs(SHOP),
    "data, journal and snapshot topics of the queues that it verifies": lambda _: (
        *logs(ORDERS), *logs(SHOP), *logs(NORTH)
    ),
    "data topic of the queue of `from_service`": lambda _: (SHOP,),
    OF_NEW_ID: lambda _: logs(ORDERS),
    "data, journal and snapshot topics of the queues to which the messages went": lambda _: logs(ORDERS),
    "for a lifetime in `create_route`": lambda _: (rights.OPEN,),
    "data topic of the queue": lambda kind: (kind.queue,),
    "with `mode` = `journal`": lambda kind: logs(kind.queue)[1:2],
    "data, journal and snapshot topic of the queue": lambda kind: logs(kind.queue),
    "also: data, journal and snapshot topic of the queue": lambda kind: logs(kind.queue),
    "topic `I.open`, data topics of the targets' queues and of": lambda _: (rights.OPEN, ORDERS, SHOP),
    "with `mode` = `conversations` or `returned`": lambda _: (rights.OPEN,),
    "groups of the queues that it shows": lambda _: tuple(f"{topic}.queue" for topic in (ORDERS, SHOP, NORTH)),
    "the three topics of a queue": lambda _: logs(NEW),
}  # fmt: skip
"""How a resource begins on the page -> names of the topics."""


def meant(kind: Kind) -> set[Right]:
    """The rights that the page gives to a kind of process."""
    found: set[Right] = set()
    for row in ROWS:
        if row.principal not in (kind.principal, "every process"):
            continue
        rest = row.resource
        while (inherited := INHERITS.match(rest)) is not None:
            who, _, terms = inherited[1].partition(", ")
            without = re.findall(r"without topic `(I\.[^`]+)`", terms)
            found |= {
                right for right in meant(PARENTS[who](kind)) if right[1] not in {_konverse(n, kind) for n in without}
            }
            rest = rest[inherited.end() :]
        found |= set(_direct(kind, rest, row.operations))
    return found


def _direct(kind: Kind, resource: str, operations: tuple[AclOperation, ...]) -> Iterator[Right]:
    renewing = () if kind.renews else (OF_NEW_ID,)
    for left_out in (*renewing, "without the group", *kind.without):
        if not resource or resource.startswith(left_out):
            return
    if resource.startswith(WRITE_ON):
        resource, operations = f"topic {resource.removeprefix(WRITE_ON)}", (AclOperation.WRITE,)
    named = re.match(r"(topic|groups?) `(I\.[^`]+)`(?!, data)", resource)
    names: tuple[str, ...]
    if named is not None:
        names = (_konverse(named[2], kind),)
    else:
        (names,) = [what(kind) for start, what in RESOURCES.items() if re.match(re.escape(start), resource)][:1]
    is_group = resource.startswith("group")
    for name in names:
        yield from (Right(GROUP if is_group else TOPIC, name, operation) for operation in operations)


def _konverse(name: str, kind: Kind) -> str:
    return name.replace("I.D.QUEUE", kind.queue).replace("I.", "konverse.")


KINDS: Final[dict[str, Kind]] = {
    "sender": Kind(SENDER, rights.RIGHTS["sender"]),
    "renewing": Kind(SENDER, rights.RENEWS, renews=True),
    "deleting": Kind("a reader that deletes records older than `keep`", [*rights.KNOWS, *rights.DELETES]),
    "client": Kind("a process with client transactions", rights.RIGHTS["client"]),
    "transmitter": Kind("`konverse transmit`", rights.RIGHTS["transmitter"]),
    "worker": Kind(READER, rights.RIGHTS["worker"], answers=(SHOP,)),
    "router": Kind("a router", rights.RIGHTS["router"], answers=(SHOP,)),
    "pool": Kind("a pool, named or not", rights.RIGHTS["pool"]),
    "named": Kind("a pool, named or not", rights.RIGHTS["named"]),
    "unread": Kind("a pool with `read=False`", rights.RIGHTS["unread"]),
    "operator": Kind("an operator (`suspended`, `resume`, `skip`, `end`)", rights.RIGHTS["operator"]),
    "auditor": Kind(VERIFY, rights.RIGHTS["auditor"]),
    "onlooker": Kind("`konverse view`, `lag`, `why` and `conversations`", rights.RIGHTS["onlooker"]),
    "administrator": Kind(ADMINISTRATOR, rights.RIGHTS["administrator"], without=("for a lifetime",)),
    "administrator of routes": Kind(ADMINISTRATOR, rights.ADMINISTERS_ROUTES),
    "following its home": Kind("a sender that calls `dialog.bounced`", rights.FOLLOWS_HOME),
    "asking": Kind("a process that calls `broker.outcome`", rights.ASKS, without=("for client transactions",)),
    "accept-loss": Kind("`konverse accept-loss`", rights.OF_LOSS, queue=LOST, answers=(SHOP,), without=("group",)),
    "spark_read": Kind(SPARK_READS, rights.OF_SPARK["spark_read"], without=("with `mode`", "also:")),
    "spark_read_journal": Kind(
        SPARK_READS,
        rights.OF_SPARK["spark_read_journal"],
        without=("data topic of the queue", "with `mode` = `conversations`", "also:"),
    ),
    "spark_conversations": Kind(
        SPARK_READS, rights.OF_SPARK["spark_conversations"], without=("with `mode` = `journal`",)
    ),
    "spark_stream": Kind(
        "Spark, streaming (`spark.readStream`)",
        rights.OF_SPARK["spark_stream"],
        without=("with `mode`", "also:"),
    ),
    "spark_write": Kind(SPARK_WRITES, rights.OF_SPARK["spark_write"]),
    "spark_write_pool": Kind("Spark, writing a stream, or with `pool` or `query`", rights.OF_SPARK["spark_write_pool"]),
    "spark_write_stream": Kind(
        "Spark, writing a stream, or with `pool` or `query`", rights.OF_SPARK["spark_write_stream"]
    ),
    "spark_process": Kind(
        "Spark, receiving (`process`, `map_arrow`)", rights.OF_SPARK["spark_process"], answers=(SHOP,)
    ),
    "spark_map_arrow": Kind(
        "Spark, receiving (`process`, `map_arrow`)", rights.OF_SPARK["spark_map_arrow"], answers=(SHOP,)
    ),
    "spark_route": Kind(
        SPARK_ROUTES, rights.OF_SPARK["spark_route"], answers=(SHOP,), without=("groups `I.D.QUEUE.queue-progress-*`",)
    ),
    "spark_route_arrow": Kind(SPARK_ROUTES, rights.OF_SPARK["spark_route_arrow"], answers=(SHOP,)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_tests_grant_exactly_the_rights_that_the_page_names(kind: str) -> None:
    page, granted = meant(KINDS[kind]), {*KINDS[kind].granted}
    assert sorted(map(in_words, page - granted)) == [], "on the page, and not granted"
    assert sorted(map(in_words, granted - page)) == [], "granted, and not on the page"


def test_each_principal_of_the_page_is_tried() -> None:
    tried = {kind.principal for kind in KINDS.values()}
    assert {row.principal for row in ROWS} - tried == {"every process"}
    assert {*rights.RIGHTS, *rights.OF_SPARK} <= {*KINDS}
