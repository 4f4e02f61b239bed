"""Services by the hash of a conversation's key, as Kafka places the key among partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from konverse.routing.partitioning import choose_partition
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.identifiers import check_name

from .rule import Lookup


class KeyHash:
    """One of several services, by the hash of the conversation's key, or of its id if it has no key."""

    kind = "key_hash"

    def __init__(self, services: Iterable[str]) -> None:
        """The order of `services` matters. Raises InvalidSettings for none or a duplicate, InvalidName."""
        self.services = tuple(check_name("service", service) for service in services)
        if not self.services or len(set(self.services)) < len(self.services):
            raise InvalidSettings(
                "a classifier by the hash of the key takes one service or more, and each of them once"
            )

    def key_of(self, message: Any, _lookup: Lookup | None = None) -> str:
        """The name of the service."""
        dialog = message.dialog
        return self.services[choose_partition(dialog.key or dialog.conversation, len(self.services))]

    def described(self) -> Mapping[str, Any]:
        """The services."""
        return {"services": list(self.services)}
