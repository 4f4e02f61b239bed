"""How sides end, and conversation ids that callers choose, in the second fold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from konverse.bridge.verifier.records import Key
from konverse.schemas.limits import NAMED_OVER_ENTRIES_MAX

ENDED, FAILED, AFTER_PEER, AFTER_ERROR, CLEANED_UP, MOVED, NEVER_BEGUN = range(7)
"""How a side ended (`dialog.state.named.How`)."""

_BY_CODE: Final = {"DI": AFTER_PEER, "ER": AFTER_ERROR}


def how_it_ends(code: str, *, failed: bool) -> int:
    """How a side in this state ends."""
    return _BY_CODE.get(code, FAILED if failed else ENDED)


@dataclass(slots=True)
class EndedNames:
    """Sides of conversations whose id the caller has chosen (protocol.md 9e)."""

    living: dict[Key, bool] = field(default_factory=dict)
    """Side that began here and has not ended -> whether another session has begun it as well."""
    over: dict[Key, tuple[int, int]] = field(default_factory=dict)
    """Side that has ended -> how, and when."""
    begins: Counter[tuple[bytes, bytes]] = field(default_factory=Counter)
    """Session and conversation -> number of its BEGINs that came to this partition."""
    refused: set[bytes] = field(default_factory=set)
    """Conversations whose second BEGIN home has refused. A target that lives, because its partition has forgotten the
    id, gets an Error."""

    def begun_here(self) -> set[tuple[bytes, bytes]]:
        """Pairs of a conversation and a session whose BEGIN of it came here."""
        return {(conversation, opener) for opener, conversation in self.begins}

    def end(self, key: Key, how: int, now_ms: int) -> None:
        """Note the end of a side, if its id was chosen by a caller."""
        if key in self.living:
            del self.living[key]
            self.forbid(key, how, now_ms)

    def forbid(self, key: Key, how: int, now_ms: int) -> None:
        """Note that a side is over and must not begin again."""
        if key not in self.over:
            if len(self.over) == NAMED_OVER_ENTRIES_MAX:
                del self.over[next(iter(self.over))]
            self.over[key] = how, now_ms

    def prune(self, floor_ms: int) -> None:
        """Forget the ends from before the floor."""
        for key in [key for key, over in self.over.items() if over[1] < floor_ms]:
            del self.over[key]
