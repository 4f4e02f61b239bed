"""Failed attempts of handlers, and groups that may have killed their process (protocol.md section 7.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from konverse.schemas.wire.columns import pack, unpack

from .endpoint import Endpoint, FailedAttempts


class Attempts:
    """Failed, suspended and suspect groups of a partition. Endpoints are named by their index."""

    __slots__ = ("careful", "failing", "suspects", "troubled", "trying")

    def __init__(self) -> None:
        self.troubled: dict[int, FailedAttempts] = {}
        self.failing = 0
        """Number of troubled endpoints that are not suspended."""
        self.trying: dict[int, None] = {}
        """The open TRY: endpoints whose groups were given to handlers and that no COMMIT has taken out since."""
        self.suspects: dict[int, int] = {}
        """Endpoint -> number of the death for which it is suspected: its TRY was open when its owner was replaced."""
        self.careful = False
        """Groups are delivered only under a TRY, because an earlier owner did not release the partition."""

    @property
    def watching(self) -> bool:
        """Whether a COMMIT can change `failing`, `trying` or `suspects`."""
        return bool(self.failing or self.trying or self.suspects)

    def count(self, endpoint: Endpoint) -> None:
        """Count one more failed attempt."""
        trouble = endpoint.trouble
        if trouble is None:
            trouble = endpoint.trouble = self.troubled[endpoint.index] = FailedAttempts()
            self.failing += 1
        trouble.attempts += 1

    def heal(self, endpoint: Endpoint) -> None:
        """Forget the attempts of an endpoint, and its suspension."""
        trouble, endpoint.trouble = endpoint.trouble, None
        if trouble is not None:
            del self.troubled[endpoint.index]
            self.failing -= not trouble.suspended

    def suspend(self, endpoint: Endpoint, reason: str, since_ms: int) -> None:
        """Suspend an endpoint until an operator decides."""
        if endpoint.trouble is None:
            endpoint.trouble = self.troubled[endpoint.index] = FailedAttempts()
        elif not endpoint.trouble.suspended:
            self.failing -= 1
        endpoint.trouble.suspended = endpoint.held = True
        endpoint.trouble.reason, endpoint.trouble.since_ms = reason, since_ms

    def suspect(self, found: list[int], *, alone: bool) -> None:
        """Record that a process died with these endpoints under its open TRY.

        With `alone` they are one group, which was tried alone. If that group was suspected before, it explains the
        earlier death as well, and the other suspects of that death are cleared.
        """
        known = self.suspects
        if alone and all(index in known for index in found):
            explained = {known[index] for index in found}
            known = {index: death for index, death in known.items() if death not in explained}
        death = 1 + max(known.values(), default=0)
        self.suspects = known | dict.fromkeys(found, death)

    def take_out(self, endpoint: Endpoint) -> None:
        """Clear the suspicion against the endpoint's group: it came back from its handler, and the process is alive."""
        for member in endpoint.members:
            self.trying.pop(member.index, None)
            self.suspects.pop(member.index, None)

    def forget(self, endpoint: Endpoint) -> None:
        """Forget an endpoint that is removed: its index will be reused."""
        self.heal(endpoint)
        self.trying.pop(endpoint.index, None)
        self.suspects.pop(endpoint.index, None)

    def freeze(self) -> dict[str, Any]:
        """The fields for the Base section of a snapshot."""
        return {
            "troubled": [
                {
                    "endpoint": index,
                    "attempts": trouble.attempts,
                    "suspended": trouble.suspended,
                    "reason": trouble.reason,
                    "since_ms": trouble.since_ms,
                }
                for index, trouble in self.troubled.items()
            ],
            "trying": pack("Q", [*self.trying]),
            "suspects": pack("Q", [*self.suspects]),
            "deaths": pack("Q", [*self.suspects.values()]),
            "careful": self.careful,
        }

    def restore(self, base: dict[str, Any], table: Sequence[Endpoint | None]) -> None:
        """Restore from the Base section of a snapshot; `table` already holds the endpoints with their groups."""
        self.trying = dict.fromkeys(unpack("Q", base["trying"]))
        self.suspects = dict(zip(unpack("Q", base["suspects"]), unpack("Q", base["deaths"]), strict=True))
        self.careful = base["careful"]
        for item in base["troubled"]:
            endpoint = table[item["endpoint"]]
            assert endpoint is not None
            trouble = FailedAttempts(
                item["attempts"], suspended=item["suspended"], reason=item["reason"], since_ms=item["since_ms"]
            )
            self.troubled[endpoint.index] = endpoint.trouble = trouble
            self.failing += not trouble.suspended
            endpoint.held = trouble.suspended
