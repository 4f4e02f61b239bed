"""Sessions that begin a finished conversation again under its caller-chosen id, by mistake or deliberately anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.dialog.session.dialogs import BeginOptions
from konverse.dialog.session.transactions import StagedTransaction
from konverse.schemas.errors import ConversationEnded, ConversationOver, InvalidState, QueueFull
from konverse.schemas.identifiers import Address
from konverse.schemas.wire.records import NAMED

if TYPE_CHECKING:
    from .places import Place
    from .plans import Plan
    from .sending import SessionProcess
    from .world import World


def latecomers(process: SessionProcess) -> list[Callable[[], None]]:
    """Possible actions: begin such a conversation again."""
    world = process.world
    plans = _may_begin_again(process) if world.swarm.naming else []
    return [partial(_begin_again, process, plans)] if plans and world.choices.chance(world.swarm.naming) else []


def _may_begin_again(process: SessionProcess) -> list[Plan]:
    """Ended dialogs with a caller-chosen id that this session may begin again."""
    world = process.world
    redirects = world.swarm.redirecting or world.swarm.heirs  # into dialogs of others, which may never open
    if redirects or len(world.history.begun_again) >= world.swarm.dialogs:
        return []
    return [
        plan
        for session in world.sessions
        for plan in session.plans
        if plan.over and plan.dialog.flags & NAMED and plan.dialog.conversation not in process.session.dialogs
    ]


def manner(process: SessionProcess) -> BeginOptions:
    """Options with which a session begins its next dialog."""
    world = process.world
    named = bool(world.swarm.naming) and world.choices.chance(world.swarm.naming)
    return BeginOptions(process.mailboxes.wants_returning, named)


def _begin_again(process: SessionProcess, plans: list[Plan]) -> None:
    """Begin a finished conversation again, directly or in a transaction, and send one message on it."""
    world, session = process.world, process.session
    dialog = world.choices.pick(plans).dialog
    again = world.history.begun_again
    mine = any(plan.dialog is dialog for plan in process.plans)
    anew = not mine and dialog.conversation not in again and world.choices.chance(300)
    body, manner = b"late%d" % world.new_message(), BeginOptions(dialog.returning, named=True, anew=anew)
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
    except ConversationOver:
        world.sometimes.happened("refused by the session that ended it")
    except (ConversationEnded, InvalidState, QueueFull):
        return
    else:
        world.sometimes.happened("begun again")


def compare_named(place: Place, reference: SecondFold) -> Iterator[str]:
    """Check that both folds know the same caller-chosen ids."""
    named = place.shadow.state.named
    known = {*named.living}, {key: tuple(over) for key, over in named.over.items()}, named.heard
    began = tuple({key: [*ids] for key, ids in one.items()} for one in (named.openers, named.former))
    if (known, began) != ((reference.named.living, reference.named.over, reference.named.heard), reference.named.began):
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
