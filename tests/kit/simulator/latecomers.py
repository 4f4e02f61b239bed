"""Sessions that begin a conversation of another session again under its caller-chosen id, open or over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.dialog.session.dialogs import BeginOptions, SessionDialog
from konverse.dialog.session.transactions import StagedTransaction
from konverse.schemas.errors import ConversationEnded, ConversationOver, InvalidState, QueueFull
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.records import NAMED

if TYPE_CHECKING:
    from .places import Place
    from .plans import Plan
    from .sending import SessionProcess
    from .world import World


_HASTE: Final = 30
"""Weight, relative to another action, of beginning again a conversation whose target has replied to a refused BEGIN."""


def latecomers(process: SessionProcess) -> list[Callable[[], None]]:
    """Possible actions: begin such a conversation again, soon if its first BEGIN was refused."""
    world = process.world
    plans = _may_begin_again(process) if world.swarm.naming else []
    refused = [plan for plan in plans if _replies_to_nobody(world, plan.dialog)]
    if refused:
        return [partial(_begin_again, process, refused)] * _HASTE
    over = not world.choices.chance(200)
    plans = [plan for plan in plans if plan.over is over]
    return [partial(_begin_again, process, plans)] if plans and world.choices.chance(world.swarm.naming) else []


def _may_begin_again(process: SessionProcess) -> list[Plan]:
    """Dialogs with a caller-chosen id that this session has not begun, or has ended."""
    world = process.world
    redirects = world.swarm.redirecting or world.swarm.heirs  # to dialogs of other sessions, which may never open
    if redirects or len(world.history.begun_again) >= world.swarm.dialogs:
        return []
    return [
        plan
        for session in world.sessions
        for plan in session.plans
        if plan.dialog.flags & NAMED and plan.dialog.conversation not in process.session.dialogs
    ]


def _replies_to_nobody(world: World, dialog: SessionDialog) -> bool:
    """Whether the target of a dialog has replied, and its home has never begun it."""
    home, target = (world.place_of(one).shadow.state for one in (dialog.begin.home, dialog.begin.target))
    key, there = (Role.INITIATOR, dialog.conversation), target.endpoint(Role.TARGET, dialog.conversation)
    begun = home.endpoint(*key) is not None or key in home.named.over or key in home.moves.stubs
    return there is not None and there.sent > 0 and not begun


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
    body, manner = b"late%d" % world.new_message(), BeginOptions(dialog.returning, named=True)
    try:
        if session.transactions.address is not None and world.choices.chance(300):
            transaction = StagedTransaction(session)
            late = transaction.begin(dialog.conversation, dialog.begin, manner)
            transaction.send(late, "t", body)
            hands = session.commit(transaction)
            again.add(dialog.conversation)
            process.hand(hands)
        else:
            late, hands = session.begin(dialog.conversation, dialog.begin, manner)
            again.add(dialog.conversation)
            process.hand(hands)
            process.hand(session.send(late, "t", body))
    except ConversationOver:
        world.sometimes.happened("refused by the session that ended it")
    except (ConversationEnded, InvalidState, QueueFull):
        return
    else:
        world.sometimes.happened("begun again" if plan.over else "begun by two sessions")


def compare_named(place: Place, reference: SecondFold) -> Iterator[str]:
    """Check that both folds know the same caller-chosen ids."""
    named = place.shadow.state.named
    known = named.living, {key: tuple(over) for key, over in named.over.items()}
    if known != (reference.named.living, reference.named.over):
        yield f"I9: {place.name}: of ids of callers {known} is known, the reference says {reference.named}"


def check_named(world: World, references: Mapping[Address, SecondFold]) -> Iterator[str]:
    """Check that a caller-chosen id lives once at each side."""
    if any(reference.floor_ms for reference in references.values()):
        return  # older conversations are forgotten
    lives: Counter[tuple[int, bytes]] = Counter(
        side.key for reference in references.values() for side in reference.sides if not side.generation
    )
    for conversation in world.history.begun_again:
        for role in (0, 1):
            if lives[role, conversation] > 1:
                yield f"I9: {conversation.hex()} began {lives[role, conversation]} times"
