"""Checks after a run has drained: the logs, the reference fold, the product's folds and the run's history agree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.dialog.owner.owner import Owner
from konverse.dialog.owner.view import unpack
from konverse.dialog.state.endpoint import NO_TIME
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address, Role, time_of_writer
from konverse.schemas.wire.client_transaction import decode as decode_transaction
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import Envelope, Kind
from tests.kit.digests import digest

from .batch_checks import check_batches
from .flushing import check_reported
from .forgers import check_forgeries, honest
from .kafka import Record
from .latecomers import check_named, compare_named
from .losses import check_losses, wrong
from .moves import check_moves, check_place, lives
from .moves import whole as whole_side
from .outcomes import outcomes
from .paths import check_finished, check_half_closed, check_order, check_transactions
from .places import Place
from .plans import Plan
from .poison import compare_attempts
from .regrouping import check_commits, check_groups
from .sides import letter_of, of_product, of_reference
from .timing import check_timers
from .verdicts import every_message
from .verified import PROBLEMS_MAX, findings, in_part, told, whole, writers_of
from .world import World

PATH_OF_VERDICT: Final = {
    "bounced WRITER_CLOSED": "bounced, writer closed", "bounced tombstone": "bounced, tombstone",
    "bounced opener": "closed opener", "bounced FINISHED": "bounced, finished",
    "refused BEGIN": "refused BEGIN", "discarded": "discarded",
}  # fmt: skip


def check(world: World) -> None:
    """Report every violation to the world's `fail`."""
    owners = writers_of(world)
    verdicts = whole(world, owners)
    references = {verdict.place.address: verdict.fold for verdict in verdicts}
    found = wrong([*findings(verdicts), *in_part(world, owners)], references.values(), cut=bool(world.losses.cut))
    found = honest(found, forged=world.forgers.struck > 0)
    problems = [*told(found), *_problems(world, references, owners)]
    if problems:
        world.fail("\n".join(problems[:PROBLEMS_MAX]))
    _count(world, references)


def _problems(world: World, references: dict[Address, SecondFold], owners: set[bytes]) -> Iterator[str]:
    for place in world.places:
        reference = references[place.address]
        yield from _folds(world, place, reference)
        yield from check_groups(place, place.shadow.state, reference)
        yield from _counters(reference)
        yield from _drained(world, place, references)
        yield from _view(place)
        yield from compare_attempts(world, place, reference, owners)
    yield from check_forgeries(world, references)
    if world.losses.some or world.forgers.struck:
        yield from _handlers(world, references)
        yield from check_losses(world, references)
        return
    yield from _outputs(world, references)
    yield from _handlers(world, references)
    yield from _sends(world, references)
    yield from _ended_dialogs(world, references)
    yield from check_batches(world, references)
    yield from check_transactions(world, references)
    yield from check_reported(world, references)
    yield from every_message(world, references)
    yield from world.rejections.check(references)
    yield from outcomes(world, references)
    yield from check_moves(world, references)
    yield from check_timers(world, references)
    yield from check_commits(world, references)
    yield from check_named(world, references)


# ----------------------------------------------------------------------------------------------------- I1, I2, I3


def _folds(world: World, place: Place, reference: SecondFold) -> Iterator[str]:
    """Check that the product's fold, the owner's live state and the reference agree."""
    place.follow(place.journal.end)
    state, head, judge = place.shadow.state, place.shadow.head, place.judge
    if (head.epoch, head.owner, head.number, head.hash, head.now_ms) != (
        judge.epoch, judge.owner, judge.number, judge.link, judge.now_ms,
    ):  # fmt: skip
        yield f"I1: {place.name}: the product judges the journal otherwise"
    owner = _owner_of(world, place)
    if digest(owner.fold.state) != digest(state):
        yield f"I3: {place.name}: the owner's state is not the fold of the logs"
    ours = {(int(e.role), e.conversation): e for e in state.live()}
    if set(ours) != set(reference.living):
        yield f"I3: {place.name}: the product has endpoints {set(ours)}, the reference {set(reference.living)}"
    both = ((key, endpoint, reference.living[key]) for key, endpoint in ours.items() if key in reference.living)
    for key, endpoint, side in both:
        product, expected = of_product(endpoint, head.now_ms), of_reference(side)
        if product != expected:
            yield f"I3: {place.name}: endpoint {key} is {product}, the reference says {expected}"
    writers = {w.id: (w.next, w.closed_at, w.heir) for w in state.writers.values()}
    expected_writers = {
        w: (len(c), reference.closed.get(w), reference.heirs.get(w))
        for w, c in reference.accepted.items()
        if w not in reference.forgotten
    }
    if state.answers != reference.answers or (state.now_ms, state.floor_ms) != (reference.now_ms, reference.floor_ms):
        yield f"I3: {place.name}: what is known of others' writers differs"
    if writers != expected_writers:
        yield f"I4: {place.name}: the product knows writers {writers}, the reference {expected_writers}"
    yield from check_finished(place.name, state, reference)
    yield from check_place(place, state, reference)
    if {key: tuple(cleaned) for key, cleaned in state.cleaned.items()} != reference.cleanups.cleaned:
        yield f"I9: {place.name}: what is known of targets that were cleaned up differs"
    yield from compare_named(place, reference)
    if state.tombstones != reference.tombstones:
        yield f"I9: {place.name}: tombstones differ"
    kept = [(key, letter_of(bounced)) for key, bounced in state.mailbox.entries.items()]
    if kept != [*reference.mailbox.items()]:
        yield f"I6: {place.name}: mailboxes differ"
    counts, tally = state.statistics, reference.tally
    verdicts = list(reference.verdicts.values())
    product_counts = (counts.duplicates, counts.gaps, counts.foreign, counts.malformed, counts.misnumbered,
                      counts.accepted, counts.bounced, counts.discarded, counts.void, counts.missing,
                      counts.strays, counts.strangers, counts.forwarded, counts.forged)  # fmt: skip
    expected_counts = (
        tally["duplicate"], tally["gap"], tally["foreign"], tally["malformed"], tally["misnumbered"],
        verdicts.count("accepted"), sum(verdict.startswith("bounced") for verdict in verdicts),
        verdicts.count("discarded") + sum(len(side.thrown_away) - side.thrown_before for side in reference.sides)
        + tally["rejected"],
        tally["row void"], reference.batches.missing, tally["no peer"], tally["stranger"],
        verdicts.count("forwarded") + verdicts.count("sent on") + tally["failed elsewhere by a loss"],
        tally["forged"],
    )  # fmt: skip
    if product_counts != expected_counts:
        yield f"I3: {place.name}: statistics are {product_counts}, the reference says {expected_counts}"


def _owner_of(world: World, place: Place) -> Owner:
    owner = next(process.owner for process in world.owners if process.place is place)
    assert owner is not None
    return owner


# --------------------------------------------------------------------------------------------------------- I4, L1


def _counters(reference: SecondFold) -> Iterator[str]:
    for writer, counters in reference.accepted.items():
        if counters != list(range(len(counters))):
            yield f"I4: writer {writer.hex()} was accepted with counters {counters}"
    for side in reference.sides:
        here = side.heard[side.brought :]
        offsets = [heard.offset for heard in here]
        places = [heard.offset if heard.decided_at < 0 else heard.decided_at for heard in here]
        if len({*offsets}) < len(offsets) or places != sorted(places):
            yield f"I5: {side.key} was accepted in another order than that of the log"
        consumed = [heard for _, heard in side.consumed]
        if consumed + side.thrown_away != side.heard[: len(consumed) + len(side.thrown_away)]:
            yield f"I7: {side.key} was consumed out of order"


def _drained(world: World, place: Place, references: dict[Address, SecondFold]) -> Iterator[str]:
    state, reference = _owner_of(world, place).fold.state, references[place.address]
    unattended, lossy = _unattended(world), world.losses.some or world.forgers.claimed
    if state.unread != sum(len(endpoint.queue) for endpoint in state.live()):
        yield f"I15: {place.name}: {state.unread} messages are counted as unread"
    if state.unread_bytes != sum(len(entry[2] or b"") for endpoint in state.live() for entry in endpoint.queue):
        yield f"I15: {place.name}: {state.unread_bytes} bytes are counted as unread"
    for side in reference.living.values():
        if len(side.consumed) < len(side.heard) and not side.ended:
            yield f"L1: {place.name}: {side.key} has unread messages"
        deaf = side.code == "DO" and lossy  # its END may have been deleted where its peer lives
        left = side.code not in ("SO", "CO") and side.key[1] not in unattended and not deaf
        if left and not _is_end_refused(world, references, side.key[1]):
            yield f"L1: {place.name}: {side.key} is left in {side.code}"
    for address, stream in state.streams.items():
        made = len(reference.outputs.get(address, ()))
        if (stream.next, stream.acked) != (made, made):
            yield f"L1: {place.name}: {made} outputs to {address}, {stream.next} in the outbox, {stream.acked} there"


def _unattended(world: World) -> set[bytes]:
    """Conversations that only their session could end, when this session can no longer do so."""
    struck = world.losses.some or world.forgers.claimed  # its END_CALL may be lost
    lost = [one for one in world.sessions if one.dead or one.shut_out or struck or world.forgers.closed_one_of(one)]
    if not world.swarm.sessions_end:
        return set()
    of_queries = {conversation for query in world.queries for conversation, _ in query.begun}
    return (
        {plan.dialog.conversation for session in lost for plan in session.all_plans}
        | of_queries
        | world.history.begun_again
    )


def _is_end_refused(world: World, references: dict[Address, SecondFold], conversation: bytes) -> bool:
    """Whether a session's END_CALL, alone or in a transaction, was refused because of the session's id.

    Such an id is too old or ahead of time. The session was notified, but had already stopped.
    """
    return any(
        envelope.counter not in references[place.address].accepted.get(envelope.writer, ())
        for place in world.places
        for record, envelope in _envelopes(place)
        if conversation in _ended_by(record, envelope)
    )


def _ended_by(record: Record, envelope: Envelope) -> set[bytes]:
    """Conversations that a record of a session ends."""
    if envelope.kind is Kind.TRANSACTION:
        with suppress(MalformedRecord):
            transaction = decode_transaction(record.body or b"")
            ends = (step for step in transaction.steps if step.kind is Kind.END_CALL)
            return {transaction.dialogs[step.dialog].conversation for step in ends}
    return {envelope.conversation} if envelope.kind is Kind.END_CALL else set()


def _envelopes(place: Place) -> Iterator[tuple[Record, Envelope]]:
    for record in place.data.records:
        with suppress(MalformedRecord):
            yield record, decode(record.header or b"")


def _view(place: Place) -> Iterator[str]:
    """Check that the view equals the fold."""
    view = place.view
    expected = {}
    for e in place.shadow.state.live():
        expected[e.conversation + b"IT"[e.role : e.role + 1]] = (
            e.state, e.sent, e.received, e.consumed, len(e.queue), e.error is not None, e.role, e.attempts, e.suspended,
            NO_TIME if e.clock is None else e.clock.timer_ms,
        )  # fmt: skip
    shown = {}
    for field, (offset, value) in view.rows.items():
        row = unpack(field, offset.to_bytes(8, "big") + value)
        shown[field] = (row.state, row.send_sequence, row.receive_sequence, row.consumed, row.unread, row.error_waits,
                        row.role, row.attempts, row.suspended, row.timer_due_ms)  # fmt: skip
        if offset > place.journal.end:
            yield f"view: {place.name}: a row names journal offset {offset}, which does not exist"
    if shown != expected:
        yield f"view: {place.name}: the view shows {shown}, the fold has {expected}"


# ------------------------------------------------------------------------------------------------------------- I8


def _outputs(world: World, references: dict[Address, SecondFold]) -> Iterator[str]:
    """Check that no output is older than its commit, and that all outputs arrived."""
    owners = {reference.writer: reference for reference in references.values()}
    for place in world.places:
        for record, envelope in _envelopes(place):
            source = owners.get(envelope.writer)
            if source is None or envelope.counter >= len(source.outputs.get(place.address, ())):
                continue
            output = source.expected(place.address, envelope.counter, envelope.kind)
            if output is not None and output.order > record.order:
                yield f"I8: {place.name} at {record.offset}: an output was there before its commit"
    for reference in references.values():
        for address, said in reference.outputs.items():
            taken = len(references[address].accepted.get(reference.writer, ()))
            if taken != len(said):
                yield f"I8: {len(said)} outputs for {address}, {taken} were accepted"


# ------------------------------------------------------------------------------------------------------------- I7


def _handlers(world: World, references: dict[Address, SecondFold]) -> Iterator[str]:
    """Check handlers whose commits count: each accepted message was received once, in order, and all sends left."""
    history = world.history
    for place in world.places:
        reference = references[place.address]
        received: dict[tuple[int, bytes], list[int]] = {}
        replies: dict[tuple[int, bytes], list[bytes]] = {}
        for number, (_, owner) in sorted(place.judge.commits.items()):
            for work in history.committed.get((place.name, owner, number), ()):
                for taken in work.taken:
                    if taken.sequence >= 0:
                        received.setdefault((taken.role, taken.conversation), []).append(taken.offset)
                for reply in work.replies:
                    replies.setdefault((reply.role, reply.conversation), []).append(reply.body)
        consumed: dict[tuple[int, bytes], list[int]] = {}
        for side in reference.sides:
            offsets = [heard.offset for number, heard in side.consumed if number >= 0]
            if offsets:
                consumed[side.key] = consumed.get(side.key, []) + offsets
        if received != consumed:
            keys = [key for key in {**received, **consumed} if received.get(key) != consumed.get(key)]
            yield (f"I7: {place.name}: handlers received {[received.get(key) for key in keys]} in commits that count, "
                   f"the journal says {[consumed.get(key) for key in keys]}")  # fmt: skip
        said: dict[tuple[int, bytes], list[bytes]] = {}
        for address, outputs in reference.outputs.items():
            for counter in range(len(outputs)):
                output = reference.expected(address, counter, Kind.MESSAGE)
                assert output is not None, "the reference begins at the beginning"
                if output.kind is Kind.MESSAGE and output.origin is None:
                    said.setdefault((output.role, output.conversation), []).append(output.body)
        if said != replies:
            keys = [key for key in {**said, **replies} if said.get(key) != replies.get(key)]
            yield (f"I8: {place.name}: handlers of commits that count sent {[replies.get(key) for key in keys]}, the "
                   f"journal says {[said.get(key) for key in keys]}")  # fmt: skip


# --------------------------------------------------------------------------------------------------------- I6, I20


def _sends(world: World, references: dict[Address, SecondFold]) -> Iterator[str]:
    """Check that every acknowledged record has one verdict, bounces are in the mailbox, and calls keep their order."""
    history = world.history
    for (writer, address), acknowledged in history.acknowledged.items():
        reference = references[address]
        taken = len(reference.accepted.get(writer, ()))
        if taken == acknowledged - 1 and _says_goodbye_too_late(world, reference, writer, taken):
            continue
        if taken < acknowledged and writer not in history.skewed:
            yield f"I6: {acknowledged} records of {writer.hex()} to {address} were acknowledged, {taken} arrived"
    for address, reference in references.items():
        for writer, counter in reference.verdicts:
            if writer in world.clients and (writer, address, counter) not in history.handed:
                yield f"I6: {address} took a record {counter} that {writer.hex()} never sent"
    for session in world.sessions:
        ahead = not history.skewed.isdisjoint(session.session.ids)  # what it wrote may have been refused
        for plan in session.plans:
            if not session.shut_out:
                yield from _end_was_last(references, session.session.ids, plan)
                if not ahead:
                    yield from check_half_closed(references, plan)
            side = whole_side(references, plan.dialog.target.address, Role.TARGET, plan.dialog.conversation)
            if side is None:
                continue
            if ahead:
                heard = {one.body for one in side.heard}
                plan.sent = [body for body in plan.sent if body in heard]
            if not (plan.redirected or plan.dialog.conversation in history.begun_again):
                yield from check_order(plan, side, references, shut_out=session.shut_out)


def _says_goodbye_too_late(world: World, reference: SecondFold, writer: bytes, counter: int) -> bool:
    """Whether a late CLOSE_WRITER has nothing to close: its writer is forgotten, or has no other record there."""
    header, _, _ = world.history.handed[writer, reference.address, counter]
    envelope = decode(header or b"")
    unknown = writer in reference.forgotten or counter == 0
    too_old = (time_of_writer(writer) or reference.floor_ms) < reference.floor_ms
    return unknown and too_old and envelope.kind is Kind.CLOSE_WRITER and envelope.conversation == writer


def _end_was_last(references: dict[Address, SecondFold], writers: list[bytes], plan: Plan) -> Iterator[str]:
    """Check that END did not overtake earlier messages of its session, unless another process ended the dialog."""
    conversation = plan.dialog.conversation
    ended = any(side.ended_by_session in writers for side in lives(references, Role.INITIATOR, conversation))
    once_more = any(one.named.begins[writer, conversation] > 1 for one in references.values() for writer in writers)
    refused = any(conversation in one.named.refused for one in references.values())  # to another session
    if not ended or once_more or refused or any(conversation in one.given_up for one in references.values()):
        return
    for late_writer, counter, late_conversation in [late for one in references.values() for late in one.too_late]:
        if late_writer in writers and late_conversation == conversation:
            yield f"I20: END of {conversation.hex()} overtook record {counter} of the session that ended it"


def _ended_dialogs(world: World, references: dict[Address, SecondFold]) -> Iterator[str]:
    """Check that a session which lived to its end, and was not shut out, left no endpoint."""
    for session in world.sessions:
        if session.dead or session.shut_out:
            continue
        ahead = not world.history.skewed.isdisjoint(session.session.ids)
        for plan in session.all_plans:
            conversation = plan.dialog.conversation
            begun = lives(references, Role.INITIATOR, conversation)
            if ahead and not any(side.ended_by_session for side in begun):
                continue  # its BEGIN or END was refused, because its clock was ahead (assumption A3)
            if conversation in world.history.begun_again or any(
                (int(Role.INITIATOR), conversation) in reference.cleanups.cut_off for reference in references.values()
            ):
                continue  # another session has begun it as well, or its END found no endpoint
            for address, reference in references.items():
                for role in Role:
                    if (int(role), conversation) in reference.living:
                        yield f"L1: {conversation.hex()} still has its {role.name} at {address}"
                heard = session.session.writer in reference.closed  # its CLOSE_WRITER has arrived
                # the tombstone of a target that ended by itself names no opener: home may still send FIRST
                left = reference.tombstones.get(conversation, conversation) != conversation
                if left and heard and len(session.session.ids) == 1:
                    yield f"I15: a tombstone of {conversation.hex()} is left at {address}"


def _count(world: World, references: dict[Address, SecondFold]) -> None:
    """Count rare paths that only the reference sees."""
    happened = world.sometimes.happened
    for reference in references.values():
        for path, times in reference.tally.items():
            happened(path, times)
        for verdict in reference.verdicts.values():
            happened("bounced", verdict.startswith("bounced"))
            if verdict in PATH_OF_VERDICT:
                happened(PATH_OF_VERDICT[verdict])
        for said in (one for outputs in reference.outputs.values() for one in outputs):
            happened("notice", said.kind is Kind.NOTICE)
        for side in reference.sides:
            happened("discarded", len(side.thrown_away))
            happened("several writers", len(side.voices) > 1)
            happened("begun by a handler", side.key[0] == Role.INITIATOR and side.key[1] in world.history.begun)
        happened("high numbers", sum(len(counters) > 64 for counters in reference.accepted.values()))
