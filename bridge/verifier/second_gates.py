"""Outputs that wait for another destination, in the second fold: since when each may stand in its destination's log."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from konverse.schemas.identifiers import Address

if TYPE_CHECKING:
    from .second_state import Said

NOT_YET: Final = 1 << 62
"""Place among all appends of an output that may not leave as far as the journal goes."""

Outputs = dict[Address, list["Said"]]


@dataclass(slots=True)
class Gates:
    """Per destination: the output from which on all wait, for whom, and for how many of their outputs."""

    closed: dict[Address, list[tuple[int, Address, int]]] = field(default_factory=dict)

    def hold(self, outputs: Outputs, to: Address, behind: Address, acknowledged: dict[Address, int]) -> None:
        """What is sent to `to` from now on waits until `behind` has what was sent there so far."""
        needed = len(outputs.get(behind, ()))
        if to != behind and acknowledged.get(behind, 0) < needed:
            self.closed.setdefault(to, []).append((len(outputs.get(to, ())), behind, needed))

    def open(self, outputs: Outputs, acknowledged: dict[Address, int], order: int) -> None:
        """The journal said at `order` what has arrived: what waited for it may leave from then on."""
        for to, gates in list(self.closed.items()):
            first = gates[0][0]
            while gates and acknowledged.get(gates[0][1], 0) >= gates[0][2]:
                del gates[0]
            said = outputs.get(to, [])
            for at in range(first, gates[0][0] if gates else len(said)):
                said[at] = said[at]._replace(order=order)
            if not gates:
                del self.closed[to]
