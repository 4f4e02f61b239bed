"""Endpoints that an owner was asked to move: locked until the next commit, which moves those that still can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from konverse.schemas.errors import BadInput, DialogNotFound, InvalidState, QueueFull
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import (
    COMMIT_MOVE_ENTRIES_MAX,
    INSTALL_BYTES_MAX,
    OUTBOX_RECORDS_MAX,
    RELOCATION_HOPS_MAX,
    STUB_ENTRIES_MAX,
)
from konverse.schemas.moved import encode_moved, pieces_of
from konverse.schemas.operations import Relocate

from .endpoint import Endpoint
from .partition import Partition
from .relocation import moved_of

AGAIN_PART: Final = 16
"""A group that was too large is measured again when this part of what waited in it was received."""


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
