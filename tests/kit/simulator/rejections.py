"""Messages that their receivers reject. The body decides, so that every owner comes to the same verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.dialog.state.endpoint import Terms
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.system_messages import Rejection
from konverse.schemas.wire.journal import Commit
from konverse.schemas.wire.records import Kind

from .priorities import some_level

if TYPE_CHECKING:
    from .world import World

REASONS: Final = (
    Rejection(8498),
    Rejection(9615, "mismatched tag: line 1, column 3"),
    Rejection(1, "\N{HOT BEVERAGE}"),
)
"""The last reason is one that no version defines."""

UNASKED: Final = Rejection(0)


class Rejections:
    """The judge of a run's owners (`konverse.dialog.state.partition.AdmissionPolicy`)."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._verdicts: dict[bytes, Rejection | None] = {}

    def verdict(self, _terms: Terms, _role: Role, _message_type: str, body: bytes | None) -> Rejection | None:
        """The verdict about a body; the same for every call."""
        choices, body = self._world.choices, body or b""
        if body not in self._verdicts:
            bad = self._world.lively and choices.chance(self._world.swarm.rejecting)
            self._verdicts[body] = choices.pick(REASONS) if bad else None
        return self._verdicts[body]

    def level(self, _contract: str, _local_service: str, _remote_service: str) -> int:
        """The priority of a side that begins."""
        return some_level(self._world)

    def examines(self, _message_type: str) -> bool:
        """Bodies are judged in runs with rejections."""
        return self._world.swarm.rejecting > 0

    def check(self, references: Mapping[Address, SecondFold]) -> Iterator[str]:
        """Check that no rejected or unjudged message is received, and that each rejection is journaled once."""
        if not self._world.swarm.rejecting:
            return
        for reference in references.values():
            for heard in (heard for side in reference.sides for heard in side.heard[side.brought :]):
                if heard.kind is Kind.MESSAGE and self._verdicts.get(heard.body, UNASKED) is not None:
                    yield f"I3: {reference.name}: {heard.body!r} is received, and its verdict is not that it may be"
        for place in self._world.places:
            commits = [one.decision for one in place.judge.judged if one.counts and isinstance(one.decision, Commit)]
            offsets = [offset for commit in commits for offset, _ in commit.rejected]
            if len(set(offsets)) < len(offsets):
                yield f"I3: {place.name}: a message is rejected twice, of those at {offsets}"
