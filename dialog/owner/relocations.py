"""Moves of endpoints to other partitions, after MOVE CONVERSATION and after ALTER SERVICE (section 7.3).

    Relocation       locks groups, and moves with the next COMMIT those that still can move
    LeavingGroups    groups that MOVE CONVERSATION has put into another partition: their members here follow (7.2)
    AlteredServices  conversations whose service ALTER SERVICE has put on another queue: they follow it (behaviour 19)

The fold knows only RELOCATE. `LeavingGroups` reads the state, so any later owner continues the move. `AlteredServices`
reads the catalog, and moves whole groups. A group that is to leave is not handed out here, unless it cannot move: then
handlers here continue to receive it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from konverse.dialog.rules.relocation import moved_of
from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.partition import Partition
from konverse.dialog.state.relocations import Arrival
from konverse.dialog.transaction.received import GroupPlace
from konverse.schemas.errors import InvalidState, QueueFull
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
"""A group that was too large is measured again when one sixteenth of its waiting messages has been received."""
LOOK_EVERY_MS: Final = 5_000
"""Pause between two checks of groups that could not move: the cost of a check grows with their messages."""
Place = Callable[[bytes], Address]
"""Returns the partition to which a group of a service belongs: one for all of its members."""


class Asked(NamedTuple):
    """A move of a locked group, which waits for the next COMMIT."""

    endpoint: Endpoint
    to: Address


class Relocation:
    """The endpoints that are to be moved away from a partition."""

    def __init__(self, state: Partition, free: Callable[[Endpoint], None]) -> None:
        self._state = state
        self._free = free
        """Unlocks the group of an endpoint."""
        self._asked: list[Asked] = []
        self._too_large: dict[Endpoint, int] = {}
        """First members of groups that were too large to move -> number of waiting messages at which they are measured
        again.

        Packing the largest group takes a second, and such groups are handed out all the time.
        """

    def __bool__(self) -> bool:
        return bool(self._asked) and self._state.waiting < OUTBOX_RECORDS_MAX

    def has(self, endpoint: Endpoint) -> bool:
        """Whether the group of the endpoint is about to move."""
        return any(move.endpoint.group is endpoint.group for move in self._asked)

    def take_along(self, endpoint: Endpoint, to: Address) -> bool:
        """Lock a group and move all of it. False when it is locked already, or must stay.

        Failed attempts do not keep a group here: handlers of another queue may try it again (M192). A suspended group
        is locked, so it waits here for its operator.
        """
        members = endpoint.members
        if any(member.held for member in members) or not self._packed(members):
            return False
        for member in members:
            member.held = True
        self._asked.append(Asked(endpoint, to))
        return True

    def _packed(self, members: Sequence[Endpoint], found: int = 0) -> list[bytes]:
        """The encoded states of these endpoints; empty when one of them must stay.

        A group moves in one COMMIT, so it stays if it has more members than a COMMIT can move. `found` endpoints move
        before it in the same COMMIT.
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
        """Forget the sizes of groups whose first member has ended."""
        table = self._state.table
        self._too_large = {one: most for one, most in self._too_large.items() if table[one.index] is one}

    def check_bounds(self, endpoint: Endpoint) -> None:
        """Raise InvalidState or QueueFull when the endpoint cannot be moved anywhere."""
        state, name = self._state, f"conversation {endpoint.id}"
        if state.moves.generation_of(endpoint.index) >= RELOCATION_HOPS_MAX:
            raise InvalidState(f"{name} has moved {RELOCATION_HOPS_MAX} times; begin a new dialog instead")
        if state.moves.count + len(self._asked) >= STUB_ENTRIES_MAX:
            raise QueueFull(
                f"{STUB_ENTRIES_MAX} conversations have moved away from here and are not over yet; retry later"
            )
        if len(encode_moved(moved_of(state, endpoint))) > INSTALL_BYTES_MAX:
            raise InvalidState(f"more than {INSTALL_BYTES_MAX} bytes wait in {name}; receive some of them first")

    def operations(self) -> list[Relocate]:
        """The moves of the next COMMIT. Groups that cannot move any more are unlocked."""
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
            members = [member for member in endpoint.members if state.table[member.index] is member]
            if any(member.clock is not None and member.clock.unsettled for member in members):
                later.append(move)  # a side with an unset timer can leave only after the timer's time is known
                continue
            packed = self._packed(members, len(found)) if members else []
            if not packed:
                self._free(endpoint)  # also if the endpoint is over: members that joined meanwhile are still locked
                continue
            for member, data in zip(members, packed, strict=True):
                generation = state.moves.generation_of(member.index)
                found.append(Relocate(member.index, move.to, generation, len(pieces_of(data))))
        self._asked = [*later, *self._asked]
        return found


def found_in(state: Partition, group: bytes) -> GroupPlace | None:
    """The place to which a conversation must move to join a group; None when the group has no members in `state`.

    A group that is about to leave counts as being at its destination: a conversation that moved here would be left
    behind.
    """
    members = state.members(group)
    return GroupPlace(state.moves.leaving.get(group, state.address), members[0].service) if members else None


class LeavingGroups:
    """Groups that are about to leave for another partition. Their members here follow."""

    def __init__(self, state: Partition, moving: Relocation) -> None:
        self._state = state
        self._moving = moving
        self._look_at_ms = 0

    def tick(self, now_ms: int) -> None:
        """Look again after a pause: a group that could not move may be able to by now."""
        if self._state.moves.leaving and now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + LOOK_EVERY_MS
            self.find()

    def find(self) -> None:
        """Move all groups that no transaction has."""
        self._moving.forget_ended()
        for group in self._state.moves.leaving:
            self.takes(self._state.members(group)[0])

    def takes(self, endpoint: Endpoint) -> bool:
        """Lock the endpoint's group if it must leave, and move it with the next COMMIT. False when it does not go."""
        group, state = endpoint.group, self._state
        to = None if group is None else state.moves.leaving.get(group.id)
        return to is not None and state.table[endpoint.index] is endpoint and self._moving.take_along(endpoint, to)

    def keeps(self, endpoint: Endpoint) -> bool:
        """Called before a group is unlocked: keep it locked if it leaves. Returns whether it is kept."""
        group, members = endpoint.group, endpoint.members
        if group is None or group.id not in self._state.moves.leaving:
            return False
        if not self._moving.has(endpoint):
            for member in members:
                member.held = member.suspended
            return self.takes(endpoint)
        return True


class AlteredServices:
    """Conversations that must leave a partition because ALTER SERVICE has put their service on another queue."""

    def __init__(self, state: Partition, moving: Relocation) -> None:
        self._state = state
        self._moving = moving
        self.services: Mapping[str, Place] = {}
        """Service on another queue -> function that returns the partition of each of its groups."""
        self._seen: Mapping[int, Arrival] = {}
        """Endpoints that had moved here before the catalog was read."""

    def find(self, services: Mapping[str, Place], arrivals: Mapping[int, Arrival]) -> None:
        """Move the conversations of these services, unless a transaction has them.

        `arrivals`: endpoints that had moved here before the catalog was read.
        """
        self.services, state = services, self._state
        self._seen = arrivals if services else {}
        self._moving.forget_ended()
        if any(terms.service in services for terms in state.terms.values()):
            for endpoint in state.live():
                if endpoint.service in services and endpoint is endpoint.members[0]:  # once per group
                    self.takes(endpoint)

    def is_new(self, endpoint: Endpoint) -> bool:
        """Whether the endpoint has moved here since the catalog was read: its sender may know a later ALTER."""
        index = endpoint.index
        return self._state.moves.arrivals.get(index) is not self._seen.get(index)

    def takes(self, endpoint: Endpoint) -> bool:
        """Lock the endpoint's group if it must leave, and move it with the next COMMIT. False when it does not go.

        A group with members of other services stays, because the owner cannot tell where it belongs. A group that has
        just arrived stays until the catalog is read again: two processes, one with an older catalog, would send it back
        and forth.
        """
        place = self.services.get(endpoint.service)
        if place is None or any(one.service != endpoint.service or self.is_new(one) for one in endpoint.members):
            return False
        return self._moving.take_along(endpoint, place(endpoint.group_id))
