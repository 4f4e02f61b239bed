"""Endpoints that an owner was asked to move: locked until the next commit, which moves those that still can be."""

from __future__ import annotations

from collections.abc import Callable

from konverse.schemas.errors import BadInput, DialogNotFound, InvalidState, QueueFull
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import INSTALL_BYTES_MAX, RELOCATION_HOPS_MAX, STUB_ENTRIES_MAX
from konverse.schemas.moved import encode_moved, pieces_of
from konverse.schemas.operations import Relocate

from .endpoint import Endpoint
from .partition import Partition
from .relocation import moved_of


class Moving:
    """What waits to be moved away from a partition."""

    def __init__(self, state: Partition, let_go: Callable[[Endpoint], None]) -> None:
        self._state = state
        self._let_go = let_go
        """Makes the group of an endpoint ready again."""
        self._asked: list[tuple[Endpoint, Address]] = []

    def __bool__(self) -> bool:
        return bool(self._asked)

    def ask(self, endpoint: Endpoint, to: Address) -> None:
        """Lock an endpoint and move it with the next commit, unless something comes between. Raises as `check`."""
        self.check(endpoint, to)
        endpoint.held = True
        self._asked.append((endpoint, to))

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
        if endpoint.held:
            raise InvalidState(f"a transaction holds {name}; move it when that is over")
        if state.moves.generation_of(endpoint.index) >= RELOCATION_HOPS_MAX:
            raise InvalidState(f"{name} has moved {RELOCATION_HOPS_MAX} times; begin a new dialog instead")
        if state.moves.count + len(self._asked) >= STUB_ENTRIES_MAX:
            raise QueueFull(f"{STUB_ENTRIES_MAX} conversations have moved away from here and are not over; move later")
        if len(encode_moved(moved_of(state, endpoint))) > INSTALL_BYTES_MAX:
            raise InvalidState(f"more than {INSTALL_BYTES_MAX} bytes wait in {name}; receive some of them first")

    def operations(self) -> list[Relocate]:
        """What is moved by the commit that is made now; what cannot be moved any more is let go."""
        state, found, later = self._state, [], []
        for endpoint, to in self._asked:
            if endpoint.clock is not None and endpoint.clock.unsettled:  # what leaves knows its times
                later.append((endpoint, to))
                continue
            if state.table[endpoint.index] is not endpoint:  # it is over; who joined its group meanwhile is locked yet
                self._let_go(endpoint)
                continue
            data = encode_moved(moved_of(state, endpoint))
            if len(endpoint.members) > 1 or len(data) > INSTALL_BYTES_MAX:
                self._let_go(endpoint)
                continue
            generation = state.moves.generation_of(endpoint.index)
            found.append(Relocate(endpoint.index, to, generation, len(pieces_of(data))))
        self._asked = later
        return found


def _trouble(endpoint: Endpoint) -> str:
    """Why its attempts have to be counted where it is."""
    if endpoint.suspended:
        return "it is suspended; resume it, skip its first message, or end it"
    if endpoint.attempts:
        return f"its handler has failed {endpoint.attempts} times; wait until it succeeds or is suspended"
    return "the process that had this partition before died; wait until all that it may have handed out was tried"
