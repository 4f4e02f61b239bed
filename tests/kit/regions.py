"""Services of three regions behind a router: the shop's order service routes orders by their content."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from konverse.bridge.broker import Broker
from konverse.bridge.client.dialog import Dialog
from konverse.dialog.transaction.received import Message
from konverse.schemas.system_messages import END_DIALOG, ERROR
from tests.kit.shop import DEADLINE_S, ORDER, ORDERING, RECEIPT, drain, receive

REGIONS: Final = ("north", "south", "west")

BY_REGION: Final = "'//sales/' || initcap(split_part(CAST(body AS STRING), ' ', 1))"
"""SQL expression for the service of an order, from the first word of its body."""


def service_of(region: str) -> str:
    """The service of a region."""
    return f"//sales/{region.capitalize()}"


def open_regions(broker: Broker, regions: tuple[str, ...] = REGIONS) -> None:
    """Create a queue and a service for each region."""
    for region in regions:
        broker.admin.create_queue(region.capitalize())
        broker.admin.create_service(service_of(region), queue=region.capitalize(), contracts=[ORDERING])


def answer_in(broker: Broker, region: str, count: int, *, end: bool = False, error: int = 0) -> Counter[bytes]:
    """The region answers `count` orders, and ends their dialogs with `end` or `error`. Returns the received bodies."""
    got = Counter[bytes]()
    with broker.reader(region.capitalize(), timeout=DEADLINE_S) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    got[message.body] += 1
                    if not error:
                        transaction.send(message.dialog, RECEIPT, region.encode() + b" has " + message.body)
                if error:
                    transaction.end(transaction.dialog, error=error, description=f"not in the {region}")
                elif end:
                    transaction.end(transaction.dialog)
            if got.total() >= count:
                break
    return got


def heard(broker: Broker, count: int) -> list[Message]:
    """Receive `count` messages in the shop, and make sure that no further one comes."""
    messages = receive(broker, "Shop", count)
    assert drain(broker, "Shop") == []
    return messages


def kinds(messages: list[Message]) -> Counter[str]:
    """Number of messages by the last part of their type."""
    return Counter(message.type.rpartition("/")[2] for message in messages)


def ends(messages: list[Message]) -> list[Message]:
    """The messages that are EndDialog or Error."""
    return [message for message in messages if message.type in (END_DIALOG, ERROR)]


def send_round(dialogs: Sequence[Dialog], number: int) -> None:
    """Send one message on each dialog, `<index of the dialog> <number>`. Does not flush."""
    for which, dialog in enumerate(dialogs):
        dialog.send(ORDER, b"%d %d" % (which, number))


def answer_rounds(broker: Broker, dialogs: int, rounds: int) -> dict[int, str]:
    """The regions answer everything that waits. Returns each dialog's region, by index of the dialog.

    AssertionError unless each dialog arrived in one region, in one conversation, each of its rounds once and in order.
    """
    arrived: dict[int, str] = {}
    for region in REGIONS:
        for bodies in _answered(broker, region).values():
            which = int(bodies[0].split()[0])
            assert bodies == [f"{which} {number}" for number in range(rounds)], "once, in order, together"
            assert arrived.setdefault(which, region) == region
    assert sorted(arrived) == [*range(dialogs)]
    return arrived


def check_replies(
    messages: Iterable[Message], dialogs: Sequence[Dialog], arrived: Mapping[int, str], rounds: int
) -> None:
    """AssertionError unless each dialog has its region's answers to all rounds, once and in order."""
    replies: defaultdict[UUID, list[str]] = defaultdict(list)
    for message in messages:
        replies[message.dialog.id].append(message.body.decode())
    for which, dialog in enumerate(dialogs):
        assert replies[dialog.id] == [f"{arrived[which]} {which} {number}" for number in range(rounds)]


def _answered(broker: Broker, region: str) -> dict[UUID, list[str]]:
    """The region answers everything that waits. Returns the received bodies by conversation."""
    got: defaultdict[UUID, list[str]] = defaultdict(list)
    with broker.reader(region.capitalize(), timeout=2.0) as reader:
        for transaction in reader:
            with transaction:
                for message in transaction:
                    got[message.dialog.id].append(message.body.decode())
                    transaction.send(message.dialog, RECEIPT, f"{region} {message.body.decode()}".encode())
    return dict(got)
