"""Endpoints that an owner was asked to move: locked until the next commit, which moves those that still can be.

Groups that MOVE CONVERSATION has put elsewhere: what is in them here follows (protocol.md section 7.2).

The transaction of the user says where; from then on it is in the group, and nothing of it is handed out here. The owner
moves it with a later commit, whoever the owner is by then, save what cannot be moved: that goes on where it is.

Conversations whose service is on another queue by now: they follow it (behaviour 19; protocol.md section 7.3).

No fold knows why. The owner sees what the catalog says, and its COMMIT moves whole groups. From then on nothing of the
service is handed out here, save what cannot move: that goes on where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from konverse.dialog.rules.relocation import moved_of
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.relocations import Arrival
from konverse.dialog.transaction.received import Found
from konverse.schemas.errors import BadInput, DialogNotFound, InvalidState, QueueFull
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import (
    COMMIT_MOVE_ENTRIES_MAX,
    INSTALL_BYTES_MAX,
    OUTBOX_RECORDS_MAX,
    RELOCATION_HOPS_MAX,
    STUB_ENTRIES_MAX,
)
from konverse.schemas.wire.moved import encode_moved, pieces_of
from konverse.schemas.wire.operations import Relocate

AGAIN_PART: Final = 16
"""A group that was too large is measured again when this part of what waited in it was received."""
LOOK_EVERY_MS: Final = 5_000
"""To look at a group that cannot move costs as much as its messages are long."""
Place = Callable[[bytes], Address]
"""Where a group of a service belongs: one partition for all that is ever in it."""


class Asked(NamedTuple):
    """A move that waits for the next commit; the group is locked."""

    endpoint: Endpoint
    to: Address
    whole: bool
    """With all of its group; else it moves only when it is alone in it."""


class Moving:
    """What waits to be moved away from a partition."""

    def __init__(self, state: Partition, let_go: Callable[[Endpoint], None]) -> None:
        self._state = state
        self._let_go = let_go
        """Makes the group of an endpoint ready again."""
        self._asked: list[Asked] = []
        self._too_large: dict[Endpoint, int] = {}
        """First members of groups that were too large to travel -> so many messages may wait when they are measured
        again: it takes a second to pack the largest, and they are handed out all the time."""

    def __bool__(self) -> bool:
        return bool(self._asked) and self._state.waiting < OUTBOX_RECORDS_MAX

    def has(self, endpoint: Endpoint) -> bool:
        """Its group is asked to move, as a whole."""
        return any(move.whole and move.endpoint.group is endpoint.group for move in self._asked)

    def ask(self, endpoint: Endpoint, to: Address) -> None:
        """Lock an endpoint and move it with the next commit, unless something comes between. Raises as `check`."""
        self.check(endpoint, to)
        endpoint.held = True
        self._asked.append(Asked(endpoint, to, whole=False))

    def take_along(self, endpoint: Endpoint, to: Address) -> bool:
        """Lock a group and move all of it; False when somebody has it, or when it has to go on where it is.

        It goes to another queue, whose handlers may try it anew: attempts that failed are no reason to stay. What is
        suspended waits for its operator here.
        """
        members = endpoint.members
        if any(member.held for member in members) or not self._packed(members):
            return False
        for member in members:
            member.held = True
        self._asked.append(Asked(endpoint, to, whole=True))
        return True

    def _packed(self, members: Sequence[Endpoint], found: int = 0) -> list[bytes]:
        """The states of these endpoints as they would travel; none at all when one of them has to stay.

        A group goes in one commit, so one of more members than a commit moves stays. `found` endpoints go before.
        """
        state = self._state
        stubs = state.moves.count + len(self._asked) + found + len(members)
        if stubs > STUB_ENTRIES_MAX or len(members) > COMMIT_MOVE_ENTRIES_MAX:
            return []
        if any(state.moves.generation_of(member.index) >= RELOCATION_HOPS_MAX for member in members):
            return []
        waiting = sum(len(member.queue) + len(member.urgent) for member in members)
        if waiting > self._too_large.get(members[0], waiting):
            return []
        packed: list[bytes] = []
        for member in members:
            packed.append(encode_moved(moved_of(state, member)))
            if len(packed[-1]) > INSTALL_BYTES_MAX:
                self._too_large[members[0]] = max(0, waiting - max(1, waiting // AGAIN_PART))
                return []
        self._too_large.pop(members[0], None)
        return packed

    def forget_ended(self) -> None:
        """Of what has ended nothing has to be known any more."""
        table = self._state.table
        self._too_large = {one: most for one, most in self._too_large.items() if table[one.index] is one}

    def check(self, endpoint: Endpoint, to: Address) -> None:
        """Raise DialogNotFound, BadInput, InvalidState or QueueFull when an endpoint cannot be moved."""
        state, name = self._state, f"conversation {endpoint.id}"
        if state.table[endpoint.index] is not endpoint:
            raise DialogNotFound(f"{name} is over, or it lives elsewhere")
        if to == state.address:
            raise BadInput(f"{name} lives in {to.topic}/{to.partition}; name another partition")
        if len(endpoint.members) > 1:
            raise InvalidState(f"{name} is in a group of several; a group lives in one partition. End the others first")
        if endpoint.trouble is not None or state.attempts.careful:
            raise InvalidState(f"{name} may not move: {_trouble(endpoint)}")
        if endpoint.group_id in state.moves.leaving:
            raise InvalidState(f"{name} is about to move to the partition of its group; move it there")
        if endpoint.held:
            raise InvalidState(f"a transaction holds {name}; move it when that is over")
        self.check_bounds(endpoint)

    def check_bounds(self, endpoint: Endpoint) -> None:
        """Raise InvalidState or QueueFull when an endpoint cannot be moved wherever it should go."""
        state, name = self._state, f"conversation {endpoint.id}"
        if state.moves.generation_of(endpoint.index) >= RELOCATION_HOPS_MAX:
            raise InvalidState(f"{name} has moved {RELOCATION_HOPS_MAX} times; begin a new dialog instead")
        if state.moves.count + len(self._asked) >= STUB_ENTRIES_MAX:
            raise QueueFull(f"{STUB_ENTRIES_MAX} conversations have moved away from here and are not over; move later")
        if len(encode_moved(moved_of(state, endpoint))) > INSTALL_BYTES_MAX:
            raise InvalidState(f"more than {INSTALL_BYTES_MAX} bytes wait in {name}; receive some of them first")

    def operations(self) -> list[Relocate]:
        """What is moved by the commit that is made now; what cannot be moved any more is let go."""
        if not self:
            return []
        state, found = self._state, list[Relocate]()
        asked, later = self._asked, list[Asked]()
        self._asked = []
        for number, move in enumerate(asked):
            endpoint = move.endpoint
            if found and len(found) + len(endpoint.members) > COMMIT_MOVE_ENTRIES_MAX:
                later += asked[number:]
                break
            lives = state.table[endpoint.index] is endpoint
            members = [member for member in endpoint.members if state.table[member.index] is member]
            if any(member.clock is not None and member.clock.unsettled for member in members):
                later.append(move)  # what leaves knows its times
                continue
            goes = move.whole or (lives and len(members) == 1)
            packed = self._packed(members, len(found)) if members and goes else []
            if not packed:
                self._let_go(endpoint)  # also when it is over: who joined its group meanwhile is locked yet
                continue
            for member, data in zip(members, packed, strict=True):
                generation = state.moves.generation_of(member.index)
                found.append(Relocate(member.index, move.to, generation, len(pieces_of(data))))
        self._asked = [*later, *self._asked]
        return found


def _trouble(endpoint: Endpoint) -> str:
    """Why its attempts have to be counted where it is."""
    if endpoint.suspended:
        return "it is suspended; resume it, skip its first message, or end it"
    if endpoint.attempts:
        return f"its handler has failed {endpoint.attempts} times; wait until it succeeds or is suspended"
    return "the process that had this partition before died; wait until all that it may have handed out was tried"


def found_in(state: Partition, group: bytes) -> Found | None:
    """Where to go to join a group that has members in this partition; None when it has none here.

    What is about to leave is followed to where it goes: who came here instead would stay behind alone.
    """
    members = state.members(group)
    return Found(state.moves.leaving.get(group, state.address), members[0].service) if members else None


class Leaving:
    """What is to go to the groups in which it is."""

    def __init__(self, state: Partition, moving: Moving) -> None:
        self._state = state
        self._moving = moving
        self._look_at_ms = 0

    def tick(self, now_ms: int) -> None:
        """Look again after a while: what could not move may be able to by now."""
        if self._state.moves.leaving and now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_EVERY_MS
            self.look()

    def look(self) -> None:
        """Have all of them moved that nobody has."""
        self._moving.forget_ended()
        for group in self._state.moves.leaving:
            self.takes(self._state.members(group)[0])

    def takes(self, endpoint: Endpoint) -> bool:
        """Lock its group and move it with the next commit; False when it stays, for now or at all."""
        group, state = endpoint.group, self._state
        to = None if group is None else state.moves.leaving.get(group.id)
        return to is not None and state.table[endpoint.index] is endpoint and self._moving.take_along(endpoint, to)

    def keeps(self, endpoint: Endpoint) -> bool:
        """Whether nobody gets its group when it is let go: it leaves, or that was decided before."""
        group, members = endpoint.group, endpoint.members
        if group is None or group.id not in self._state.moves.leaving:
            return False
        if not self._moving.has(endpoint):
            for member in members:
                member.held = member.suspended
            return self.takes(endpoint)
        return True


class Altering:
    """What has to leave a partition because ALTER SERVICE has named another queue."""

    def __init__(self, state: Partition, moving: Moving) -> None:
        self._state = state
        self._moving = moving
        self.services: Mapping[str, Place] = {}
        """Services that are on another queue by now."""
        self._seen: Mapping[int, Arrival] = {}
        """Who had come from elsewhere when the catalog was read."""

    def look(self, services: Mapping[str, Place], arrivals: Mapping[int, Arrival]) -> None:
        """Ask for the conversations of these services to be moved, as far as nobody has them.

        `arrivals` are those who had come from elsewhere before the catalog was read.
        """
        self.services, state = services, self._state
        self._seen = arrivals if services else {}
        self._moving.forget_ended()
        if any(terms.service in services for terms in state.terms.values()):
            for endpoint in state.live():
                if endpoint.service in services and endpoint is endpoint.members[0]:  # once for all of its group
                    self.takes(endpoint)

    def is_new(self, endpoint: Endpoint) -> bool:
        """It has come from elsewhere since the catalog was read: who sent it here may know better."""
        index = endpoint.index
        return self._state.moves.arrivals.get(index) is not self._seen.get(index)

    def takes(self, endpoint: Endpoint) -> bool:
        """Lock its group and move it with the next commit; False when that is not to be, or cannot be.

        A group in which others than this service are stays, as its owner cannot tell where it belongs. One that has
        just come stays until the catalog is read again: of two processes one may be behind, and each sends it back.
        """
        place = self.services.get(endpoint.service)
        if place is None or any(one.service != endpoint.service or self.is_new(one) for one in endpoint.members):
            return False
        return self._moving.take_along(endpoint, place(endpoint.group_id))
