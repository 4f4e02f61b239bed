"""How sides end, and conversation ids that callers choose, in the second fold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from konverse.bridge.verifier.records import Key
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import NAMED_OPENER_ENTRIES_MAX, NAMED_OVER_ENTRIES_MAX
from konverse.schemas.wire.records import NAMED

ENDED, FAILED, BEHIND_PEER, BEHIND_ERROR, CLEANED_UP, MOVED, NEVER_BEGUN = range(7)
"""How a side ended (`dialog.state.named.How`)."""

_BY_CODE: Final = {"DI": BEHIND_PEER, "ER": BEHIND_ERROR}


def how_it_ends(code: str, *, failed: bool) -> int:
    """How a side in this state ends."""
    return _BY_CODE.get(code, FAILED if failed else ENDED)


@dataclass(slots=True)
class EndedNames:
    """Sides of conversations whose id the caller has chosen (protocol.md 9e and 9g)."""

    living: set[Key] = field(default_factory=set)
    """Sides that began here and have not ended."""
    anew: set[Key] = field(default_factory=set)
    """Those of them that were begun with ANEW."""
    over: dict[Key, tuple[int, int]] = field(default_factory=dict)
    """Side that has ended -> how, and when."""
    heard: set[Key] = field(default_factory=set)
    """Sides that know the end of their peer."""
    openers: dict[Key, list[bytes]] = field(default_factory=dict)
    """Side -> openers of the conversation that lives, or lived last."""
    former: dict[Key, list[bytes]] = field(default_factory=dict)
    """Side -> openers of former conversations of this id and refused ones, except those of the last conversation."""
    begins: Counter[tuple[bytes, bytes]] = field(default_factory=Counter)
    """Session and conversation -> number of its BEGINs that came to this partition."""
    refused: set[bytes] = field(default_factory=set)
    """Conversations that home refused to begin again. If the target has forgotten the id and lives, it gets an
    Error."""

    def begin(self, key: Key, opener: bytes, *, anew: int) -> None:
        """Note that a side begins here."""
        if anew:
            self.anew.add(key)
        before = self.former.get(key, []) + self.openers.get(key, []) if key in self.over else self.former.get(key, [])
        self.former[key], self.openers[key] = before, []
        self.over.pop(key, None)
        self.living.add(key)
        self.take_part(key, opener)
        self.heard.discard(key)

    def take_part(self, key: Key, opener: bytes) -> None:
        """Note another BEGIN or FIRST of a side that lives."""
        if key in self.living:
            for known, more in ((self.openers, [opener]), (self.former, [])):
                known[key] = ([one for one in known.get(key, []) if one != opener] + more)[-NAMED_OPENER_ENTRIES_MAX:]

    def turn_away(self, key: Key, opener: bytes) -> None:
        """Note an opener whose BEGIN or FIRST was refused, also one that has begun the conversation before."""
        if key in self.living or key in self.over:
            for known, more in ((self.openers, []), (self.former, [opener])):
                known[key] = ([one for one in known.get(key, []) if one != opener] + more)[-NAMED_OPENER_ENTRIES_MAX:]

    @property
    def began(self) -> tuple[dict[Key, list[bytes]], dict[Key, list[bytes]]]:
        """`openers` and `former`, without empty entries."""
        openers, former = ({key: ids for key, ids in one.items() if ids} for one in (self.openers, self.former))
        return openers, former

    def begun_here(self) -> set[tuple[bytes, bytes]]:
        """Pairs of a conversation whose home is here, and a session that has begun it or a former one of its id."""
        known = [*self.openers.items(), *self.former.items()]
        return {(key[1], opener) for key, openers in known if key[0] == Role.INITIATOR for opener in openers}

    def peer_has_ended(self, key: Key) -> None:
        """Note that a side has the END or the Error of its peer, or knows that the peer does not live."""
        if key in self.living or key in self.over:
            self.heard.add(key)

    def end(self, key: Key, how: int, now_ms: int) -> None:
        """Note the end of a side, if its id was chosen by a caller."""
        if key in self.living:
            self.living.remove(key)
            self.anew.discard(key)
            self.forbid(key, how, now_ms)

    def forbid(self, key: Key, how: int, now_ms: int) -> None:
        """Note that a side is over and must not begin again."""
        if key not in self.over:
            if len(self.over) == NAMED_OVER_ENTRIES_MAX:
                self._let_go(next(iter(self.over)))
            self.over[key] = how, now_ms

    def flags(self, key: Key) -> int:
        """Flags of the END that a side sends."""
        return NAMED if key[0] == Role.INITIATOR and key in self.living else 0

    def prune(self, floor_ms: int) -> None:
        """Forget the ends from before the floor."""
        for key in [key for key, over in self.over.items() if over[1] < floor_ms]:
            self._let_go(key)

    def _let_go(self, key: Key) -> None:
        self.over.pop(key)
        self.openers.pop(key, None)
        self.former.pop(key, None)
        self.heard.discard(key)
