"""Dialogs that handlers begin, and their messages: sent at once, or when another message of the group arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from konverse.dialog.state.endpoint import Endpoint
from konverse.dialog.state.transitions import State
from konverse.dialog.transaction.begun import NewDialog
from konverse.dialog.transaction.received import Clauses, Message
from konverse.schemas.identifiers import Role
from konverse.schemas.wire.records import NO_SEQUENCE, Begin

from .places import Place
from .timing import some_timeout

if TYPE_CHECKING:
    from .handlers import Work
    from .world import World

BEGUN_MAX: Final = 12
"""Most dialogs that handlers begin in a run; handlers may answer each other."""


def begin_here(world: World, place: Place, clauses: Clauses) -> tuple[bytes, Begin]:
    """Make the conversation and BEGIN block of a dialog that a handler begins."""
    conversation = world.identifier(b"conversation")
    target = world.choices.pick(world.places)
    near, far, contract, group, key, lifetime_ms, _ = clauses
    begin = Begin(near, far, contract, place.address, target.address, group or conversation, key)
    return conversation, begin._replace(lifetime_ms=lifetime_ms)


def begin(work: Work, message: Message) -> None:
    """Begin one or two dialogs, with and without a group in common, and send nothing, one message or several."""
    world, transaction = work.world, work.at
    choices, terms = world.choices, (message.dialog.service, message.dialog.far_service)
    related: Endpoint | NewDialog | None = None
    for _ in range(1 + choices.choose(2)):
        if len(world.history.begun) >= BEGUN_MAX:
            return
        related = choices.pick([None, message.dialog, related or message.dialog])
        key = b"key" if choices.chance(200) else None
        lifetime = some_timeout(choices) / 1000 if choices.chance(world.swarm.lifetimes) else None
        related = dialog = transaction.begin(*terms, "contract", related_to=related, key=key, lifetime=lifetime)
        world.history.begun.add(dialog.conversation)
        count = (1, 0, 0, 3)[choices.choose(4)]
        for number in range(count):
            work.reply(dialog, ("r", "s")[choices.choose(2)], b"%d:%d>" % (work.nonce, number) + dialog.conversation)
        if choices.chance(world.swarm.ending):
            code = 17 * choices.choose(2)
            work.end(dialog, code, cleanup=not code and choices.chance(world.swarm.cleaning))
        elif count and choices.chance(world.swarm.finishing):
            transaction.finish(dialog)


def speak_first(work: Work) -> None:
    """Send on a dialog of the group before its target has answered: the first message, if a handler has begun it."""
    silent = [
        dialog
        for dialog in work.at.conversations
        if dialog.role is Role.INITIATOR
        and dialog.state is State.STARTED_OUTBOUND
        and not (dialog.finished is not None and dialog.finished.own)
    ]
    if not silent or not work.world.choices.chance(300):
        return
    dialog = work.world.choices.pick(silent)
    assert work.at.find(dialog.id) is dialog
    if dialog not in (*work.ended, *work.finished):
        work.reply(dialog, "r", b"%d:first %d" % (work.nonce, len(work.replies)))
        work.world.sometimes.happened("handler spoke first", dialog.sent != NO_SEQUENCE)
