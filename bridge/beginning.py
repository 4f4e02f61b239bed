"""BEGIN DIALOG: what the catalog makes of its clauses."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from konverse.routing.partitioning import choose_home, choose_partition
from konverse.schemas.catalog import Contract, Queue, Service
from konverse.schemas.errors import BadInput, ContractNotFound, InvalidSettings
from konverse.schemas.limits import KEY_BYTES_MAX
from konverse.schemas.records import Begin

from .catalog import Catalog
from .dialog import Dialog


class Wanted(NamedTuple):
    """The clauses of BEGIN DIALOG."""

    from_service: str
    to_service: str
    contract: str
    related_to: Dialog | None = None
    key: bytes | None = None
    conversation_id: uuid.UUID | None = None


def begin_block(catalog: Catalog, owned: Callable[[Queue], AbstractSet[int]], wanted: Wanted) -> tuple[bytes, Begin]:
    """Conversation id and addresses; `owned` are the partitions of a queue to which replies should come.

    Raises ServiceNotFound (8423), ContractNotFound (8425), InvalidSettings.
    """
    from_service, to_service, contract, related_to, key, conversation_id = wanted
    source, target = catalog.get(Service, from_service), catalog.get(Service, to_service)
    catalog.get(Contract, contract)
    if contract not in target.contracts:
        raise ContractNotFound(
            f"service {to_service!r} does not accept contract {contract!r}; it accepts "
            f"{', '.join(map(repr, target.contracts)) or 'none'}. Name one of these, or create the service with "
            f"contracts=[{contract!r}]"
        )
    if key is not None and len(key) > KEY_BYTES_MAX:
        raise InvalidSettings(f"the key has {len(key)} bytes; at most {KEY_BYTES_MAX} are allowed")
    conversation = (conversation_id or uuid.uuid4()).bytes
    home, far = catalog.get(Queue, source.queue), catalog.get(Queue, target.queue)
    if related_to is not None:
        group, home_address = related_to.begin.group, related_to.begin.home
        if home_address.topic != home.topic:
            raise InvalidSettings(
                f"the related dialog belongs to service {related_to.begin.from_service!r} on another queue; "
                "a conversation group belongs to one queue"
            )
    else:
        group = conversation
        near = owned(home) if conversation_id is None else frozenset[int]()
        home_address = home.address(choose_home(conversation, home.partitions, frozenset(near)))
    begin = Begin(
        from_service,
        to_service,
        contract,
        home_address,
        far.address(choose_partition(key or group, far.partitions)),
        group,
        key,
    )
    return conversation, begin


def check_same(dialog: Dialog, wanted: Wanted) -> Dialog:
    """The dialog, which may have been begun before; BadInput when that was another one."""
    known = dialog.begin
    if (known.from_service, known.to_service, known.contract) != wanted[:3]:
        raise BadInput(
            f"conversation {dialog.id} was begun from {known.from_service!r} to {known.to_service!r} "
            f"under {known.contract!r}; give another id"
        )
    return dialog
