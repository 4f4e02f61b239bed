"""What acknowledged losses of a session concern (M292): the fold and the second fold agree with a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from konverse.schemas.identifiers import Role, session_writer
from konverse.schemas.wire.records import ACKED, HEIR, Kind
from tests.kit.builders import Scribe, begin_block, identifier
from tests.kit.twice import Twice

CONVERSATION: Final = identifier("a conversation")


def session(number: int) -> Scribe:
    scribe = Scribe("a session")
    scribe.id = session_writer(1_000, number)
    return scribe


def failed(both: Twice) -> tuple[bool, bool]:
    """Whether the conversation has failed, by each fold."""
    endpoint = both.first.state.endpoint(Role.TARGET, CONVERSATION)
    side = both.second.living[int(Role.TARGET), CONVERSATION]
    return endpoint is not None and endpoint.error is not None, side.error is not None


Case = Callable[[Twice, Scribe, Scribe], None]


def _is_open(_both: Twice, _opener: Scribe, _loser: Scribe) -> None:
    """The session that began the conversation goes on under its first id, as far as is known."""


def _has_closed_itself(both: Twice, opener: Scribe, _loser: Scribe) -> None:
    both.take(opener.close(both.address, opener.id))


def _was_closed_by_an_asker(both: Twice, opener: Scribe, _loser: Scribe) -> None:
    both.take(session(5).close(both.address, opener.id))


def _goes_on_as(both: Twice, opener: Scribe, heir: Scribe) -> None:
    both.take(heir.write(Kind.CLOSE_WRITER, both.address, opener.id, flags=HEIR, sequence=1))


def _has_another_heir(both: Twice, opener: Scribe, _loser: Scribe) -> None:
    _goes_on_as(both, opener, session(5))


def _has_another_heir_that_is_over(both: Twice, opener: Scribe, _loser: Scribe) -> None:
    heir = session(5)
    _goes_on_as(both, opener, heir)
    both.take(heir.close(both.address, heir.id))


def _has_the_loser_as_heir(both: Twice, opener: Scribe, loser: Scribe) -> None:
    _goes_on_as(both, opener, loser)


def _has_the_loser_as_second_heir(both: Twice, opener: Scribe, loser: Scribe) -> None:
    heir = session(5)
    _goes_on_as(both, opener, heir)
    both.take(loser.write(Kind.CLOSE_WRITER, both.address, heir.id, flags=HEIR, sequence=1))


@pytest.mark.parametrize(
    ("case", "from_its_first_record", "later"),
    [
        (_is_open, True, False),
        (_has_closed_itself, False, False),
        (_was_closed_by_an_asker, False, False),
        (_has_another_heir, True, False),  # the loser may have closed that heir
        (_has_another_heir_that_is_over, False, False),
        (_has_the_loser_as_heir, None, True),
        (_has_the_loser_as_second_heir, None, True),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_both_folds_fail_the_conversations_of_the_table(
    case: Case, from_its_first_record: bool | None, later: bool, known: bool
) -> None:
    """`known`: the partition has records of the session before the lost ones."""
    both, opener, loser = Twice(), session(1), session(2)
    both.take(opener.first(both.address, CONVERSATION, begin_block(group=CONVERSATION)))
    case(both, opener, loser)
    if known:
        both.take(loser.write(Kind.VOID, both.address, bytes(16)))
    expected = later if known or from_its_first_record is None else from_its_first_record
    loser.next[both.address] += 3
    both.take(loser.write(Kind.VOID, both.address, bytes(16), flags=ACKED))
    assert failed(both) == (expected, expected)


@pytest.mark.parametrize("known", [False, True])
def test_a_conversation_that_an_owner_began_misses_nothing_of_a_session(known: bool) -> None:
    both, owner, loser = Twice(), Scribe("an owner"), session(2)
    both.take(owner.first(both.address, CONVERSATION, begin_block(group=CONVERSATION)))
    if known:
        both.take(loser.write(Kind.VOID, both.address, bytes(16)))
    loser.next[both.address] += 3
    both.take(loser.write(Kind.VOID, both.address, bytes(16), flags=ACKED))
    assert failed(both) == (False, False)


def test_records_that_name_no_writer_are_malformed_for_both_folds() -> None:
    """The zero id stands for "no heir, ever". If it had an heir of its own, lines of heirs would have no end."""
    both, opener, stranger, heir = Twice(), session(1), session(2), session(3)
    both.take(opener.first(both.address, CONVERSATION, begin_block(group=CONVERSATION)))
    both.take(stranger.write(Kind.CLOSE_WRITER, both.address, bytes(16), flags=HEIR, sequence=0))
    both.take(stranger.write(Kind.CLOSE_WRITER, both.address, stranger.id, counter=0))
    both.take(heir.write(Kind.CLOSE_WRITER, both.address, stranger.id, flags=HEIR, sequence=1))
    assert (both.first.state.statistics.malformed, both.second.tally["malformed"]) == (1, 1)
    assert failed(both) == (False, False)
