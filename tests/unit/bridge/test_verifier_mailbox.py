"""A full mailbox drops the same messages in the second fold as in the first."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from konverse.bridge.verifier.fold import mailbox as second_mailbox
from konverse.bridge.verifier.fold.state import SecondState
from konverse.dialog.state import mailbox
from konverse.dialog.state.mailbox import Bounced, Mailbox
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.records import NO_SEQUENCE, Bounce, BounceReason, Envelope, Kind, Suffix
from tests.kit.builders import address_of

SESSION = b"s" * 16
RECORD: Any = SimpleNamespace(body=b"", body_bytes=0)


@pytest.mark.parametrize("notes", [(), (0, 2), (0, 1, 2, 3, 4, 5)])
def test_both_folds_keep_a_routers_word_for_longest(monkeypatch: pytest.MonkeyPatch, notes: tuple[int, ...]) -> None:
    for module in (mailbox, second_mailbox):
        monkeypatch.setattr(module, "MAILBOX_ENTRIES_MAX", 3)
    first, second = Mailbox(), SecondState(address_of(), bytes(16))
    for number in range(6):
        reason = BounceReason.REDIRECTED if number in notes else BounceReason.GIVEN_BACK
        bounce = Bounce(SESSION, number, address_of(), reason)
        first.keep(Bounced(SESSION, bounce, bytes(16), NO_SEQUENCE, "order", b""))
        suffix = Suffix("order", detail=bounce)
        envelope = Envelope(Kind.BOUNCE, 0, Role.TARGET, bytes(4), SESSION, bytes(16), number, NO_SEQUENCE, suffix)
        second_mailbox.put(second, envelope, RECORD)
        assert [*second.mailbox] == [*first.entries]
    assert second.tally["let go"] == 3
