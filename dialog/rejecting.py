"""Messages that their receiver rejects: they break the contract, or their body is not what their type says.

The verdict is the receiver's (behaviour 6). Its owner finds it once, by what it knows of the catalog then, and its
COMMIT says so; every fold takes it from there and asks nobody (protocol.md section 7.8).
"""

from __future__ import annotations

from typing import Protocol

from konverse.schemas.records import Role
from konverse.schemas.system_messages import Rejected, Rejection, rejected_body

from .endings import end_endpoint, fail
from .endpoint import Endpoint, Terms
from .partition import Partition


class Judge(Protocol):
    """What an owner asks about the messages that it ingests, and the conversations that begin with them."""

    def verdict(self, terms: Terms, role: Role, message_type: str, body: bytes | None, /) -> Rejection | None:
        """Why the side `role` may not receive this; None when it may."""

    def level(self, contract: str, local_service: str, remote_service: str, /) -> int:
        """The priority of a side that begins (behaviours 216, 217)."""

    def examines(self, message_type: str, /) -> bool:
        """Whether the verdict depends on the body: else a message like the one before it is not asked about again."""


def reject(state: Partition, endpoint: Endpoint, offset: int, message_type: str, why: Rejection) -> None:
    """The conversation fails, on both sides (behaviours 4, 131 to 133).

    What was accepted before can still be received. A target that has accepted nothing learns nothing of it.
    """
    state.rejected[offset] = why
    state.statistics.discarded += 1
    body = rejected_body(why, Rejected(message_type, endpoint.conversation, endpoint.role, endpoint.received))
    if endpoint.role is Role.TARGET and not endpoint.received:
        end_endpoint(state, endpoint, body)
    else:
        fail(state, endpoint, offset, body)
