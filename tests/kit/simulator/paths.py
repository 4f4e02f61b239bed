"""Checks of half-closed directions and of transactions after a run (I6, I9, I20)."""

from __future__ import annotations

from collections.abc import Iterator

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.bridge.verifier.fold.state import NOT_YET, Side
from konverse.dialog.state.endpoint import Finished
from konverse.dialog.state.partition import Partition
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import BounceId, BounceReason, Kind

from .moves import whole
from .plans import Plan
from .transacting import Tried
from .world import World


def check_finished(name: str, state: Partition, reference: SecondFold) -> Iterator[str]:
    """Check that product and reference agree about every FIN, and that no output is still gated."""
    for endpoint in state.live():
        side = reference.living.get((int(endpoint.role), endpoint.conversation))
        if side is None:
            continue
        known = endpoint.finished or Finished()
        if known != Finished(side.finished, side.peer_finished, side.answer, tuple(side.askers)):
            yield f"I9: {name}: of {side.key} the product has finished {known}, the reference says otherwise"
    if state.gated or any(output.order == NOT_YET for said in reference.outputs.values() for output in said):
        yield f"L1: {name}: outputs still wait for other destinations"


def check_transactions(world: World, references: dict[Address, SecondFold]) -> Iterator[str]:
    """Check that all messages of a transaction arrived, or none; all of them once it was acknowledged."""
    there = {address: _bodies(world, address) for address in references}
    known = [one for reference in references.values() for one in reference.cleanups.taken_back.values()]
    taken_back = {(one.role, one.conversation) for one in known if one is not None}
    for tried in world.history.transactions:
        if any((int(Role.INITIATOR), dialog.conversation) in taken_back for dialog in tried.transaction.dialogs):
            continue  # an operator ended the home's side WITH CLEANUP, which withdraws its unsent messages
        writer, counter = tried.record
        arrived = [body for address, body in tried.sends if body in there[address]]
        if arrived and len(arrived) < len(tried.sends):
            yield f"torn: of {tried.sends} in one transaction only {arrived} arrived"
        if arrived and not tried.committed:
            yield f"torn: {arrived} were sent in a transaction that was dropped"
        verdict = references[tried.at].verdicts.get((writer, counter))
        acknowledged = 0 <= counter < world.history.acknowledged.get((writer, tried.at), 0)
        refused = verdict is not None and verdict.startswith("bounced")
        acknowledged &= writer not in world.history.skewed
        if acknowledged and not refused and len(arrived) < len(tried.sends):
            yield f"I6: a transaction was acknowledged and {tried.sends} did not arrive"
        if refused and arrived:
            yield f"torn: {arrived} of a transaction arrived that was refused"
        world.sometimes.happened("transaction refused", refused)
        if refused:
            yield from _nothing_follows(references, tried)
    yield from _sent_back(world, references)


def _nothing_follows(references: dict[Address, SecondFold], tried: Tried) -> Iterator[str]:
    """Check that nothing sent on the dialogs after a refused transaction was received."""
    for plan, sent in tried.sent_before.items():
        side = whole(references, plan.dialog.target.address, Role.TARGET, plan.dialog.conversation)
        later = set(plan.sent[sent:])
        if side is not None and any(heard.body in later for heard in side.heard):
            yield f"I20: {plan.dialog.conversation.hex()} received what was sent after a refused transaction"


def _sent_back(world: World, references: dict[Address, SecondFold]) -> Iterator[str]:
    """Check that each bounce reached a mailbox, and that WRITER_CLOSED names only closed sessions."""
    clients = {writer for session in world.sessions if not session.shut_out for writer in session.session.ids}
    boxes = {name for reference in references.values() for name in (*reference.mailbox, *reference.fates)}
    for reference in references.values():
        for (sender, counter, address, reason), session in reference.sent_back:
            if reason is BounceReason.WRITER_CLOSED and session in clients:
                yield f"I6: {address} refused what {session.hex()} had sent before it closed itself"
            if BounceId(sender, counter, address) not in boxes:
                yield f"I6: what {sender.hex()} sent to {address} under {counter} came back and reached no mailbox"


def _bodies(world: World, address: Address) -> set[bytes | None]:
    """Bodies of all messages in a data log."""
    found = set()
    for record in world.log_of(address).records:
        try:
            envelope = decode(record.header or b"")
        except MalformedRecord:
            continue
        if envelope.kind is Kind.MESSAGE:
            found.add(record.body)
    return found


def check_half_closed(references: dict[Address, SecondFold], plan: Plan) -> Iterator[str]:
    """Check that a target has received the FIN that its session called before END."""
    conversation = plan.dialog.conversation
    home, target = (
        whole(references, address, role, conversation)
        for role, address in zip(Role, (plan.dialog.begin.home, plan.dialog.begin.target), strict=True)
    )
    said = plan.finished and plan.sent and home is not None and home.ended_by_session
    if any(conversation in reference.given_up for reference in references.values()):
        return  # its target may have been over before the FIN came
    if said and target is not None and not target.peer_finished:
        yield f"I9: {conversation.hex()} was finished, then ended, and its target never heard of the first"


def _cleaned_up(references: dict[Address, SecondFold], plan: Plan) -> set[bytes]:
    """Messages that home was to send for the session and withdrew because of a cleanup."""
    key = (int(Role.INITIATOR), plan.dialog.conversation)
    cleanups = [reference.cleanups for reference in references.values() if key in reference.cleanups.cut_off]
    known = [one for cleanup in cleanups for one in cleanup.taken_back.values() if one is not None]
    return {one.body for one in known if (one.role, one.conversation) == key and one.origin is not None}


def check_order(plan: Plan, side: Side, references: dict[Address, SecondFold], *, shut_out: bool) -> Iterator[str]:
    """Check that messages of a session on a dialog are received in the order of the calls, by all paths.

    None is missing, unless another process has closed the session at a partition on the path, or home withdrew it.
    """
    sent = set(plan.sent)
    bodies = [heard.body for heard in side.heard if heard.body in sent]
    places = [plan.sent.index(body) for body in bodies]
    gone = _cleaned_up(references, plan).difference(bodies)
    expected = [body for body in plan.sent if body not in gone]
    if places != sorted(places) or (bodies != expected[: len(bodies)] and not shut_out):
        yield f"I20: {plan.dialog.conversation.hex()} received {bodies}, {plan.sent} were sent"
