"""Sessions that begin a conversation of another session again under its caller-chosen id.

By mistake when it is over, deliberately anew when it is over, and anew by mistake while it lives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.dialog.session.dialogs import BeginOptions, SessionDialog
from konverse.dialog.session.transactions import StagedTransaction
from konverse.schemas.errors import ConversationEnded, ConversationOver, InvalidState, MalformedRecord, QueueFull
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import ANEW, NAMED

if TYPE_CHECKING:
    from .places import Place
    from .plans import Plan
    from .sending import SessionProcess
    from .world import World

_ANEW_MAX: Final = 2
"""How often one conversation is begun anew."""


def latecomers(process: SessionProcess) -> list[Callable[[], None]]:
    """Possible actions: begin such a conversation again."""
    world = process.world
    plans = _may_begin_again(process, over=not world.choices.chance(200)) if world.swarm.naming else []
    return [partial(_begin_again, process, plans)] if plans and world.choices.chance(world.swarm.naming) else []


def _may_begin_again(process: SessionProcess, *, over: bool) -> list[Plan]:
    """Dialogs with a caller-chosen id, ended or open, that this session may begin again."""
    world = process.world
    redirects = world.swarm.redirecting or world.swarm.heirs  # into dialogs of others, which may never open
    if redirects or len(world.history.begun_again) >= world.swarm.dialogs:
        return []
    return [
        plan
        for session in world.sessions
        for plan in session.plans
        if plan.over is over and plan.dialog.flags & NAMED and plan.dialog.conversation not in process.session.dialogs
    ]


def manner(process: SessionProcess) -> BeginOptions:
    """Options with which a session begins its next dialog."""
    world = process.world
    named = bool(world.swarm.naming) and world.choices.chance(world.swarm.naming)
    return BeginOptions(process.mailboxes.wants_returning, named)


def _begin_again(process: SessionProcess, plans: list[Plan]) -> None:
    """Begin a conversation again, directly or in a transaction, and send on it."""
    world, session = process.world, process.session
    plan = world.choices.pick(plans)
    dialog, again = plan.dialog, world.history.begun_again
    # The verifier takes a second conversation of one session for the first one where both have moved to one partition.
    moves = world.swarm.moves + world.swarm.altering + world.swarm.regrouping > 0
    knows = moves and any(plan.dialog is dialog for plan in process.plans)
    anew = not knows and again.get(dialog.conversation, 0) < _ANEW_MAX and (not plan.over or world.choices.chance(300))
    if not (plan.over or anew):
        return
    body, manner = b"late%d" % world.new_message(), BeginOptions(dialog.returning, named=True, anew=anew)
    if anew:
        world.history.sent_anew.add(body)
    if not plan.over:
        world.history.intruders.setdefault(dialog.conversation, []).append(process)
    try:
        if session.transactions.address is not None and world.choices.chance(300):
            transaction = StagedTransaction(session)
            late = transaction.begin(dialog.conversation, dialog.begin, manner)
            transaction.send(late, "t", body)
            hands = session.commit(transaction)
            again[dialog.conversation] = again.get(dialog.conversation, 0) + anew
            process.hand(hands)
        else:
            late, hands = session.begin(dialog.conversation, dialog.begin, manner)
            again[dialog.conversation] = again.get(dialog.conversation, 0) + anew
            process.hand(hands)
            process.hand(session.send(late, "t", body))
            if anew and world.choices.chance(400):
                _go_on(process, late)
    except ConversationOver:
        world.sometimes.happened("refused by the session that ended it")
    except (ConversationEnded, InvalidState, QueueFull):
        return
    else:
        world.sometimes.happened("begun again")


def _go_on(process: SessionProcess, late: SessionDialog) -> None:
    """Send once more on a dialog that was begun anew, and perhaps end it. Its first message may come back."""
    world, body = process.world, b"later%d" % process.world.new_message()
    world.history.sent_anew.add(body)
    process.hand(process.session.send(late, "t", body))
    if world.choices.chance(500):
        process.hand(process.session.end(late))


def compare_named(place: Place, reference: SecondFold) -> Iterator[str]:
    """Check that both folds know the same caller-chosen ids."""
    named = place.shadow.state.named
    begun_anew = {key for key, anew in named.living.items() if anew}
    known = {*named.living}, begun_anew, {key: tuple(over) for key, over in named.over.items()}, named.heard
    began = tuple({key: [*ids] for key, ids in one.items()} for one in (named.openers, named.former))
    told = reference.named.living, reference.named.anew, reference.named.over, reference.named.heard
    if (known, began) != (told, reference.named.began):
        yield f"I9: {place.name}: of ids of callers {known} is known, the reference says {reference.named}"


def check_named(world: World, references: Mapping[Address, SecondFold]) -> Iterator[str]:
    """Check that a caller-chosen id lives once at each side, and once more for each time it was begun anew."""
    if any(reference.floor_ms for reference in references.values()):
        return  # older conversations are forgotten
    lives: Counter[tuple[int, bytes]] = Counter(
        side.key for reference in references.values() for side in reference.sides if not side.generation
    )
    for conversation, anew in world.history.begun_again.items():
        for role in (0, 1):
            if lives[role, conversation] > 1 + anew:
                yield f"I9: {conversation.hex()} began {lives[role, conversation]} times, {anew} of them anew"
    yield from _mixed(world, references)


def _mixed(world: World, references: Mapping[Address, SecondFold]) -> Iterator[str]:
    """Check that no session which wanted a new conversation spoke in, or ended, one begun without ANEW (M268, M269)."""
    for place in world.places:
        flags = dict(_flags(place))
        for side in references[place.address].sides:
            role, conversation = side.key
            if side.generation:
                continue
            if role == Role.TARGET and side.heard and not flags.get(side.heard[0].offset, 0) & ANEW:
                for body in (one.body for one in side.heard if one.body in world.history.sent_anew):
                    yield f"M269: {body!r} was sent on a new conversation, and {conversation.hex()} received it"
            intruders = {
                one for process in world.history.intruders.get(conversation, ()) for one in process.session.ids
            }
            if role == Role.INITIATOR and side.opener not in intruders and side.ended_by_session in intruders:
                yield f"M268: {conversation.hex()} was ended by a session that was refused"


def _flags(place: Place) -> Iterator[tuple[int, int]]:
    """Offset and flags of each record."""
    for record in place.data.records:
        with suppress(MalformedRecord):
            yield record.offset, decode(record.header or b"").flags
