"""BEGIN DIALOG: checks the clauses against the catalog, and makes the BEGIN block with all addresses.

A client's dialog may have its home in any partition of the initiator's queue. A handler's dialog has its home in the
partition that the handler reads. The target is a queue of the database that the routes choose (`Network.place`). This
choice is final: the BEGIN block names the partition, so later changes of routes concern later dialogs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final, NamedTuple

from konverse.bridge.catalog.catalog import Catalog
from konverse.bridge.catalog.homes import place_in
from konverse.bridge.catalog.network import Network
from konverse.bridge.reader.readers import Readers
from konverse.bridge.runtime.ids import random_id
from konverse.bridge.runtime.settings import Settings
from konverse.dialog.session.dialogs import BeginOptions
from konverse.dialog.state.partition import Partition
from konverse.dialog.transaction.received import Clauses
from konverse.routing.loops import with_hops
from konverse.routing.partitioning import choose_home, choose_partition
from konverse.schemas.catalog.objects import Queue
from konverse.schemas.catalog.priorities import BrokerPriority, level_of
from konverse.schemas.errors import BadInput, ConversationOver, ForeignGroup, InvalidSettings
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import KEY_BYTES_MAX, ROUTER_HOPS_MAX
from konverse.schemas.timeouts import milliseconds
from konverse.schemas.wire.records import FOR_EVER, Begin

from .dialog import Dialog

CURRENT_DATABASE: Final = "CURRENT DATABASE"
"""Value of `broker_instance` for the database of the caller."""


class BeginClauses(NamedTuple):
    """The clauses of BEGIN DIALOG."""

    from_service: str
    to_service: str
    contract: str
    related_to: Dialog | None = None
    group: uuid.UUID | None = None
    key: bytes | None = None
    conversation_id: uuid.UUID | None = None
    lifetime: float | None = None
    """Seconds."""
    broker_instance: uuid.UUID | str | None = None
    encryption: bool = False
    returning: bool = False
    own_id: bool = False
    """konverse chose the id, so it is never used again."""


class Prepared(NamedTuple):
    """Everything that a session needs to begin a dialog."""

    conversation: bytes
    begin: Begin
    placed: int
    """`Catalog.placed` of the initiator's service: a number that changes when the service moves to another queue."""
    manner: BeginOptions


def begin_block(
    settings: Settings, network: Network, owned: Callable[[Queue], AbstractSet[int]], wanted: BeginClauses
) -> Prepared:
    """Conversation id and addresses of a client's dialog.

    `owned` gives the partitions of a queue that this process owns: the home is chosen among them where the id or group
    does not fix it, so that replies come to this process. Raises ServiceNotFound (8423, or 8490 with
    `broker_instance`), ContractNotFound (8425), ForeignGroup (9610), InvalidTimeout (8411), BadInput, InvalidSettings,
    NotSupportedYet.
    """
    from_service, to_service, contract, related_to, wanted_group, key, conversation_id, lifetime, *_ = wanted
    if wanted.encryption and not settings.encrypted:
        raise InvalidSettings(
            "ENCRYPTION ON needs a TLS connection to Kafka, which encrypts all conversations in transit: connect with "
            "client={'security.protocol': 'ssl', …}, or leave `encryption` out"
        )
    catalog = network.catalog
    broker_id = named_broker_id(catalog, wanted.broker_instance)
    lifetime_ms = FOR_EVER if lifetime is None else milliseconds(lifetime, "a lifetime")
    if related_to is not None and wanted_group is not None:
        raise InvalidSettings("a dialog takes its group from `related_to` or from `group`: give one, not both")
    conversation = random_id() if conversation_id is None else conversation_id.bytes
    placed, (home, far) = network.placed(
        to_service, broker_id, conversation, partial(_placed, catalog, from_service, to_service, contract)
    )
    if related_to is not None:
        group, home_address = related_to.begin.group, related_to.begin.home
        if related_to.begin.from_service != from_service:
            raise ForeignGroup(
                f"the related dialog belongs to service {related_to.begin.from_service!r}, not to {from_service!r}: "
                "a conversation group belongs to one service"
            )
        if related_to.staged.placed != placed:  # ALTER SERVICE changed the queue, and the group moves with it
            home_address = place_in(home, group)
    else:
        group = conversation if wanted_group is None else wanted_group.bytes
        anywhere = conversation_id is None and wanted_group is None
        near = owned(home) if anywhere else frozenset[int]()
        home_address = home.address(choose_home(group, home.partitions, frozenset(near)))
    begin = _begin(from_service, to_service, contract, home_address, far, group, key)
    begin = begin._replace(lifetime_ms=lifetime_ms, broker_instance=None if broker_id is None else str(broker_id))
    level = level_of(catalog.known(BrokerPriority), contract, from_service, to_service)
    named = conversation_id is not None and not wanted.own_id
    return Prepared(conversation, begin, placed, BeginOptions(wanted.returning, named, level))


def check_at_home(readers: Readers, prepared: Prepared) -> None:
    """Raise the error with which the home refuses the begin, if a reader of this process owns the home.

    ConversationOver for the id of a conversation that is over; ForeignGroup (9610) for a group of another service
    (behaviour 37).
    """
    conversation, begin, *_ = prepared

    def question(home: Partition) -> ConversationOver | ForeignGroup | None:
        services = {one.service for one in home.members(begin.group) if one.conversation != conversation}
        if services - {begin.from_service}:
            return ForeignGroup(
                f"conversation group {uuid.UUID(bytes=begin.group)} belongs to service {services.pop()!r}, not to "
                f"{begin.from_service!r}: a conversation group belongs to one service"
            )
        return home.named.refusal(conversation)

    for error in readers.answers(begin.home, question):
        if error is not None:
            raise error


def _placed(
    catalog: Catalog, from_service: str, to_service: str, contract: str, database: str
) -> tuple[int, tuple[Queue, Queue]]:
    """`Catalog.placed` of the initiator's service, and the queues of initiator and target, consistent with it."""
    while True:
        placed = catalog.placed(from_service)
        queues = catalog.queues_of(from_service, to_service, contract, database)
        if placed == catalog.placed(from_service):
            return placed, queues


def named_broker_id(catalog: Catalog, named: uuid.UUID | str | None) -> uuid.UUID | None:
    """The broker id that a dialog names (behaviours 42, 134). Raises BadInput."""
    if named is None or named == CURRENT_DATABASE:
        return None if named is None else catalog.broker_id
    try:
        return uuid.UUID(str(named))
    except ValueError:
        raise BadInput(
            f"{named!r} is not a broker instance; give the id of a database, or {CURRENT_DATABASE!r}"
        ) from None


def begin_here(network: Network, queue: Queue, partition: int, clauses: Clauses) -> tuple[bytes, Begin]:
    """Conversation id and BEGIN block of a handler's dialog, whose home is the partition that the handler reads.

    Raises BadInput, ServiceNotFound (8423), ContractNotFound (8425); InvalidSettings for a key that is too long, and
    when the service is on another queue, whose partitions this process may not own.
    """
    _check_clauses(clauses)
    from_service, to_service, contract, group, key, lifetime_ms, hops = clauses
    conversation = with_hops(random_id(), hops) if hops else random_id()
    queues_of = partial(network.catalog.queues_of, from_service, to_service, contract)
    home, far = network.placed(to_service, None, conversation, queues_of)
    if home.topic != queue.topic:
        raise InvalidSettings(
            f"service {from_service!r} is on queue {home.name!r}, and this handler reads queue {queue.name!r}: "
            "replies go to the queue of the service. Begin from a service of this queue, or use `broker.begin_dialog`"
        )
    address = home.address(partition)
    begin = _begin(from_service, to_service, contract, address, far, group or conversation, key)
    return conversation, begin._replace(lifetime_ms=lifetime_ms)


def _check_clauses(clauses: Clauses) -> None:
    """Check the argument types, as `broker.begin_dialog` does by its signature. BadInput names the argument."""
    for name in ("from_service", "to_service", "contract"):
        value = getattr(clauses, name)
        if not isinstance(value, str):
            raise BadInput(f"begin: argument {name!r} must be a name (str), not {value!r}")
    key: object = clauses.key
    if not isinstance(key, bytes | None):
        raise BadInput(f"begin: argument 'key' must be bytes, not {key!r}; encode it first")
    hops: object = clauses.hops
    if not (isinstance(hops, int) and 0 <= hops <= ROUTER_HOPS_MAX):
        raise BadInput(f"begin: argument 'hops' must be a number of routers, 0 to {ROUTER_HOPS_MAX}, not {hops!r}")


def _begin(  # noqa: PLR0913, PLR0917  # the fields of a BEGIN
    from_service: str, to_service: str, contract: str, home: Address, far: Queue, group: bytes, key: bytes | None
) -> Begin:
    if key is not None and len(key) > KEY_BYTES_MAX:
        raise InvalidSettings(f"the key has {len(key)} bytes; at most {KEY_BYTES_MAX} are allowed; shorten it")
    target = far.address(choose_partition(key or group, far.partitions))
    return Begin(from_service, to_service, contract, home, target, group, key)


def check_same(dialog: Dialog, wanted: BeginClauses) -> Dialog:
    """The dialog itself; BadInput when this id was begun before with other services, contract or `returning`."""
    known, returning = dialog.begin, dialog.staged.returning
    if (known.from_service, known.to_service, known.contract, returning) != (*wanted[:3], wanted.returning):
        raise BadInput(
            f"conversation {dialog.id} was begun from {known.from_service!r} to {known.to_service!r} "
            f"under {known.contract!r}, as a {'' if returning else 'non-'}returning dialog; give another id"
        )
    return dialog
