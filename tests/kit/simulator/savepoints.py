"""Savepoints: work that handlers and sessions roll back leaves no trace."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from konverse.dialog.session.transactions import StagedTransaction
from konverse.dialog.transaction.received import Message
from konverse.schemas.errors import ConversationEnded, InvalidState
from konverse.schemas.system_messages import error_body

from .beginnings import begin
from .timing import set_timers

if TYPE_CHECKING:
    from .handlers import Work
    from .plans import Plan
    from .sending import SessionProcess


def try_and_undo(work: Work, message: Message) -> None:
    """A handler does more and rolls back, once or twice. Everything before the savepoint stays."""
    world, transaction = work.world, work.at
    if not (world.lively and world.choices.chance(world.swarm.savepoints)):
        return
    transaction.savepoint("before")
    before = work.taken, work.replies, work.ended, work.finished
    for _ in range(1 + world.choices.choose(2)):
        work.taken, work.replies = [*before[0]], [*before[1]]
        work.ended, work.finished = [*before[2]], [*before[3]]
        _do_something(work, message)
        transaction.rollback("before")
    work.taken, work.replies, work.ended, work.finished = before
    world.sometimes.happened("undone by a handler")


def _do_something(work: Work, message: Message) -> None:
    choices, dialog = work.world.choices, message.dialog
    if choices.choose(2):
        again = work.at.receive(1 + choices.choose(2))
        work.world.sometimes.happened("received and given back", len(again))
    may_say = dialog.state.code in ("SO", "CO") and (dialog.finished is None or not dialog.finished.own)
    if may_say and dialog not in (*work.ended, *work.finished):
        work.reply(dialog, "r", b"%d undone" % work.nonce)
        if choices.choose(2):
            work.end(dialog, 17 * choices.choose(2))
            work.ended.append(dialog)
    if choices.chance(work.world.swarm.handlers_begin):
        begin(work, message)
    set_timers(work)


def stage_and_undo(process: SessionProcess, transaction: StagedTransaction, plans: list[Plan]) -> None:
    """A session's transaction does more and rolls back."""
    world = process.world
    if not world.choices.chance(world.swarm.savepoints):
        return
    transaction.savepoint("before")
    with suppress(ConversationEnded, InvalidState):
        if process.may_begin:
            conversation, block, _ = process.choose_dialog()
            transaction.send(transaction.begin(conversation, block), "t", b"undone")
        if plans:
            dialog = world.choices.pick(plans).dialog
            transaction.send(dialog, "t", b"undone")
            transaction.end(dialog, error_body(5, "enough") if world.choices.choose(2) else b"")
    transaction.rollback("before")
    world.sometimes.happened("undone by a session")
