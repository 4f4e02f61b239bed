"""Checks that every message of a session has exactly one fate, wherever it was redirected (I6, I20)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address, Role
from konverse.schemas.wire.envelope import decode
from konverse.schemas.wire.records import FIRST, BounceId, Envelope, Kind, Opened

from .adopting import check_adopted
from .moves import lives, verdict_of, whole
from .outcomes import CLOSED
from .plans import Plan
from .world import World

References = Mapping[Address, SecondFold]


def every_message(world: World, references: References) -> Iterator[str]:
    """Check that each acknowledged message is received, discarded, let go, confirmed, or in its mailbox."""
    received = Counter(
        heard.body
        for reference in references.values()
        for side in reference.sides
        for heard in side.heard[side.brought :]
    )
    for (writer, address, counter), (header, _, value) in world.history.handed.items():
        envelope = decode(header or b"")
        if envelope.kind is not Kind.MESSAGE:
            continue
        body = value or b""
        if received[body] > 1:
            yield f"I6: {body!r} was received {received[body]} times"
        if counter >= world.history.acknowledged.get((writer, address), 0) or writer in world.history.skewed:
            continue
        end = _end(world, references, BounceId(writer, counter, address))
        if end.startswith("lost"):
            yield f"I6: {body!r} was acknowledged and is {end}"
        elif (end == "received") != bool(received[body]):
            yield f"I6: {body!r} is {end}, and was received {received[body]} times"
    for session in world.sessions:
        for plan in session.plans:
            yield from _in_order(references, session.session.ids, plan)
            if not session.shut_out:
                yield from _opened(world, references, plan)
    yield from _first_once(world, references)
    yield from _returned(world, references)
    yield from check_adopted(world, references)
    yield from _alone(references)


def _end(world: World, references: References, name: BounceId) -> str:
    """The fate of a record at the end of its way."""
    for _ in range(100):
        verdict = verdict_of(references, name.writer, name.at, name.counter) or "lost: it was not taken"
        if not verdict.startswith("bounced"):
            return {"accepted": "received", "void": "taken back"}.get(verdict, verdict)
        home = next((place for place, fold in references.items() if name in fold.mailbox or name in fold.fates), None)
        if home is None:
            return "lost: its bounce reached no mailbox"
        if name in references[home].mailbox:
            return "in the mailbox"
        fate = references[home].fates[name]
        asked = world.history.asked.get(name, [])
        if fate.how == "confirmed" and None not in asked:
            return "lost: nobody confirmed it, and its bounce is gone"
        if fate.to is None:
            return fate.how
        if fate.conversation not in asked:
            return "lost: nobody redirected it there"
        name = BounceId(references[home].writer, fate.counter, fate.to)
    return "lost: it is redirected for ever"


def _in_order(references: References, writers: list[bytes], plan: Plan) -> Iterator[str]:
    """Check that messages sent and redirected on a dialog are received in the order of the calls."""
    if not plan.redirected:
        return
    home, mine = references[plan.dialog.begin.home], {*plan.sent}
    heard = [
        one.body for side in lives(references, Role.TARGET, plan.dialog.conversation)
        for one in side.heard[side.brought :] if one.writer in (*writers, home.writer) and one.body in mine
    ]  # fmt: skip
    calls = iter(plan.sent)
    if not all(body in calls for body in heard):
        yield f"I20: {plan.dialog.conversation.hex()} received {heard}, {plan.sent} were sent and redirected"


def _opened(world: World, references: References, plan: Plan) -> Iterator[str]:
    """Check that no message overtakes FIRST, from any sender: only messages after an end find no endpoint."""
    conversation = plan.dialog.conversation
    if any((role, conversation) in one.cleanups.cut_off for one in references.values() for role in (0, 1)):
        return  # messages after its cleanup found no endpoint
    target = references[plan.dialog.begin.target]
    begun = whole(references, plan.dialog.begin.home, Role.INITIATOR, conversation)
    said = [
        verdict_of(references, envelope.writer, plan.dialog.begin.target, envelope.counter)
        for envelope in _messages(world, plan.dialog.begin.target)
        if envelope.conversation == conversation and (envelope.writer, envelope.counter) in target.verdicts
    ]  # fmt: skip
    talked = "accepted" in said
    if said and said[0] == "bounced NO_ENDPOINT" and begun and (talked or not begun.ended):
        yield f"I6: messages on {conversation.hex()} came back before its FIRST was there"


def _first_once(world: World, references: References) -> Iterator[str]:
    """Check that FIRST of a conversation has one writer and counter: the session's, or those of home for it.

    Home sends another one for a handler, once, since it does not know what the session has sent.
    """
    owners, seen = {one.writer for one in references.values()}, dict[tuple[bytes, bool], tuple[bytes, int]]()
    for place in world.places:
        for envelope in _messages(world, place.address):
            name = (envelope.writer, envelope.counter)
            if envelope.conversation in world.history.begun_again:
                continue
            heard = references[place.address].verdicts.get(name, CLOSED[0]) not in CLOSED
            by_home = envelope.writer in owners and envelope.suffix.origin is None
            key = envelope.conversation, by_home and isinstance(envelope.suffix.detail, Opened)
            if heard and envelope.flags & FIRST and seen.setdefault(key, name) != name:
                yield f"I9: {envelope.conversation.hex()} has two records with FIRST"


def _returned(world: World, references: References) -> Iterator[str]:
    """Check that late messages on a returning dialog are not discarded, by whatever path they came."""
    returning = {p.dialog.conversation for one in world.sessions for p in one.all_plans if p.dialog.returning}
    sessions = {writer for one in world.sessions for writer in one.session.ids}
    for place in world.places:
        for envelope in _messages(world, place.address):
            mine = (envelope.suffix.origin or envelope.writer) in sessions
            if mine and envelope.role is Role.INITIATOR and envelope.conversation in returning:
                verdict = verdict_of(references, envelope.writer, place.address, envelope.counter)
                world.sometimes.happened("returned", verdict == "bounced PEER_ENDED")
                if verdict == "discarded":
                    yield f"I6: {envelope.counter} of {envelope.writer.hex()} was to return and was discarded"


def _messages(world: World, address: Address) -> Iterator[Envelope]:
    """The messages in a data log whose counters are the expected ones."""
    taken: Counter[bytes] = Counter()
    for record in world.log_of(address).records:
        try:
            envelope = decode(record.header or b"")
        except MalformedRecord:
            continue
        if envelope.tag == address.tag and envelope.counter == taken[envelope.writer]:
            taken[envelope.writer] += 1
            if envelope.kind is Kind.MESSAGE:
                yield envelope


def _alone(references: References) -> Iterator[str]:
    """Check that a target which spoke has learned that its initiator does not live."""
    for reference in references.values():
        for (role, conversation), side in reference.living.items():
            peer = (int(Role.INITIATOR), conversation)
            alone = not any(peer in (*other.living, *other.cleanups.cut_off) for other in references.values())
            if role == Role.TARGET and side.numbering > 0 and alone:
                yield f"L1: the target of {conversation.hex()} speaks to nobody"
