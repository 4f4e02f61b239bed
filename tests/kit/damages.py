"""Deliberate damages to correct logs. The verifier must find each of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from konverse.bridge.verifier.check import Place, judge
from konverse.bridge.verifier.records import Record
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import owner_writer
from konverse.schemas.system_messages import Rejection
from konverse.schemas.wire.envelope import decode, encode_envelope
from konverse.schemas.wire.journal import GENESIS_HASH, SYSTEM_BITS, Claim, Commit, EndOperation, Part, encode_commit
from konverse.schemas.wire.journal import decode as decode_journal
from konverse.schemas.wire.records import FIRST, NAMED, Envelope, Kind


@dataclass
class Logs:
    """The logs of one partition; damages change them in place."""

    place: Place
    journal: list[Record]
    data: list[Record]

    @property
    def writer(self) -> bytes:
        return owner_writer(self.place.incarnation, self.place.partition)


History = list[Logs]
Damage = Callable[[History, random.Random], bool]
"""Changes the logs. Returns False when they contain nothing that can be damaged this way."""


# ------------------------------------------------------------------------------------------------------------ helpers


def envelope_of(record: Record) -> Envelope | None:
    try:
        return decode(record.header or b"")
    except MalformedRecord:
        return None


def messages(logs: Logs) -> list[tuple[int, Envelope]]:
    """Index in the data log and envelope of each accepted message, once each."""
    seen: dict[bytes, int] = {}
    out = []
    for at, record in enumerate(logs.data):
        envelope = envelope_of(record)
        if envelope is None or envelope.tag != logs.place.address.tag:
            continue
        if envelope.counter != seen.get(envelope.writer, 0):
            continue
        seen[envelope.writer] = envelope.counter + 1
        if envelope.kind is Kind.MESSAGE:
            out.append((at, envelope))
    return out


def outputs(logs: Logs, everywhere: History) -> list[tuple[int, Envelope]]:
    """The accepted messages that an owner wrote."""
    owners = {each.writer for each in everywhere}
    return [(at, envelope) for at, envelope in messages(logs) if envelope.writer in owners]


def counting(logs: Logs) -> list[tuple[int, Commit]]:
    """Index in the journal and content of each COMMIT that counts."""
    verdict = judge(logs.place, logs.journal, (), ())
    return [
        (at, decision)
        for at, record in enumerate(logs.journal)
        if isinstance(decision := decode_or_none(record), Commit)
        and verdict.journal.commits.get(decision.number, (-1,))[0] == record.offset
    ]


def decode_or_none(record: Record) -> Claim | Commit | Part | None:
    try:
        return decode_journal(record.body or b"")
    except MalformedRecord:
        return None


def rewrite(logs: Logs, number: int, change: Callable[[Commit], Commit]) -> None:
    """Change a COMMIT that counts and recompute the hash chain behind it, as a forger with write access would."""
    link = GENESIS_HASH
    for at, commit in counting(logs):
        changed = replace(change(commit) if commit.number == number else commit, previous_hash=link)
        data = encode_commit(changed)
        link = sha256(data).digest()
        logs.journal[at] = logs.journal[at]._replace(body=data)


def relabel(logs: Logs, at: int, **changes: object) -> None:
    """Change the envelope of a record."""
    envelope = envelope_of(logs.data[at])
    assert envelope is not None
    header = encode_envelope(envelope._replace(**changes))  # type: ignore[arg-type]
    logs.data[at] = logs.data[at]._replace(header=header)


def some(history_: History, rng: random.Random, find: Callable[[Logs], list[object]]) -> tuple[Logs, object] | None:
    found = [(logs, item) for logs in history_ for item in find(logs)]
    return rng.choice(found) if found else None


def damage(find: Callable[[Logs, History], list[object]]) -> Callable[[Callable[..., None]], Damage]:
    """Make a damage that changes one random item of those that `find` returns."""

    def decorate(do: Callable[..., None]) -> Damage:
        def damaged(logs: History, rng: random.Random) -> bool:
            chosen = some(logs, rng, lambda each: find(each, logs))
            if chosen is None:
                return False
            do(*chosen)
            return True

        return damaged

    return decorate


def consumed_messages(logs: Logs, everywhere: History) -> list[object]:
    """Indexes of messages that a handler consumed, except the last of each conversation."""
    verdict = judge(logs.place, logs.journal, logs.data, ())
    offsets = {heard.offset for side in verdict.fold.sides for _, heard in side.consumed[:-1]}
    return [at for at, _ in messages(logs) if logs.data[at].offset in offsets]


def acknowledged_outputs(logs: Logs, everywhere: History) -> list[object]:
    known = {
        each.writer: judge(each.place, each.journal, each.data, ()).fold.acknowledged.get(logs.place.address, 0)
        for each in everywhere
    }
    return [at for at, envelope in outputs(logs, everywhere) if envelope.counter < known[envelope.writer]]


def all_outputs(logs: Logs, everywhere: History) -> list[object]:
    return [at for at, _ in outputs(logs, everywhere)]


def receiving(logs: Logs, _: History) -> list[object]:
    return [commit for _, commit in counting(logs) if commit.operations.receive_endpoints]


def sending(logs: Logs, _: History) -> list[object]:
    return [commit for _, commit in counting(logs) if commit.operations.sends]


def not_last(logs: Logs, _: History) -> list[object]:
    return [at for at, _ in counting(logs)[:-1]]


def any_commit(logs: Logs, _: History) -> list[object]:
    return [commit for _, commit in counting(logs)]


def single_voiced(logs: Logs, _: History) -> list[object]:
    """Indexes of messages with a sequence number from their sender, on conversations with one writer."""
    verdict = judge(logs.place, logs.journal, logs.data, ())
    sides = [side for side in verdict.fold.sides if len(side.voices) == 1]
    offsets = {heard.offset for side in sides for heard in side.heard if heard.kind is Kind.MESSAGE}
    return [at for at, e in messages(logs) if e.sequence >= 0 and logs.data[at].offset in offsets]


# ------------------------------------------------------------------------------------------------------------ damages


@damage(consumed_messages)
def a_message_is_lost(logs: Logs, at: int) -> None:
    counter = envelope_of(logs.data[at])
    logs.data[:] = [r for r in logs.data if (e := envelope_of(r)) is None or counter is None
                    or (e.writer, e.counter) != (counter.writer, counter.counter)]  # fmt: skip


@damage(all_outputs)
def an_output_has_another_body(logs: Logs, at: int) -> None:
    logs.data[at] = logs.data[at]._replace(body=b"forged")


@damage(all_outputs)
def an_output_has_another_type(logs: Logs, at: int) -> None:
    envelope = envelope_of(logs.data[at])
    assert envelope is not None
    relabel(logs, at, suffix=envelope.suffix._replace(message_type="//forged"))


@damage(all_outputs)
def an_output_goes_to_another_conversation(logs: Logs, at: int) -> None:
    relabel(logs, at, conversation=b"another one here")


@damage(all_outputs)
def an_output_has_another_number(logs: Logs, at: int) -> None:
    envelope = envelope_of(logs.data[at])
    assert envelope is not None
    relabel(logs, at, sequence=envelope.sequence + 1)


@damage(all_outputs)
def an_output_came_from_no_commit(logs: Logs, at: int) -> None:
    envelope = envelope_of(logs.data[at])
    assert envelope is not None
    last = logs.data[-1].offset
    logs.data.append(logs.data[at]._replace(offset=last + 1, header=encode_envelope(envelope._replace(counter=10_000))))
    logs.place = logs.place._replace(certain_to=last + 2, data_end=last + 2)


@damage(acknowledged_outputs)
def an_acknowledged_output_is_not_there(logs: Logs, at: int) -> None:
    gone = envelope_of(logs.data[at])
    assert gone is not None
    logs.data[:] = [
        r for r in logs.data if (e := envelope_of(r)) is None or (e.writer, e.counter) != (gone.writer, gone.counter)
    ]


@damage(not_last)
def a_commit_is_missing(logs: Logs, at: int) -> None:
    logs.journal[:] = [record for record in logs.journal if record.body != logs.journal[at].body]  # with its duplicates


@damage(not_last)
def a_commit_was_changed(logs: Logs, at: int) -> None:
    commit = decode_or_none(logs.journal[at])
    assert isinstance(commit, Commit)
    logs.journal[at] = logs.journal[at]._replace(body=encode_commit(replace(commit, rejected=[(7, Rejection(7))])))


@damage(sending)
def a_commit_says_other_bodies(logs: Logs, commit: Commit) -> None:
    def change(one: Commit) -> Commit:
        sends = [(index, name, [b"forged"] * len(bodies)) for index, name, bodies in one.operations.sends]
        return replace(one, operations=replace(one.operations, sends=sends))

    rewrite(logs, commit.number, change)


@damage(sending)
def a_commit_says_fewer_outputs(logs: Logs, commit: Commit) -> None:
    rewrite(logs, commit.number, lambda one: replace(one, operations=replace(one.operations, sends=[])))


@damage(sending)
def outputs_of_a_commit_that_does_not_count(logs: Logs, commit: Commit) -> None:
    at = next(at for at, one in counting(logs) if one.number == commit.number)
    del logs.journal[at:]


@damage(receiving)
def a_message_is_consumed_that_never_came(logs: Logs, commit: Commit) -> None:
    def change(one: Commit) -> Commit:
        positions = [position + (1_000 << SYSTEM_BITS) for position in one.operations.receive_positions]
        return replace(one, operations=replace(one.operations, receive_positions=positions))

    rewrite(logs, commit.number, change)


def _received_again(logs: Logs, _: History) -> list[object]:
    """Each COMMIT that receives on an endpoint from which an earlier COMMIT consumed, with the endpoint's index."""
    commits = {commit.number: commit for _, commit in counting(logs)}
    out: list[object] = []
    for side in judge(logs.place, logs.journal, logs.data, ()).fold.sides:
        numbers = sorted({number for number, _ in side.consumed if number >= 0})
        out += [(commits[number], side.index) for number in numbers[1:] if number in commits]
    return out


@damage(_received_again)
def a_message_is_consumed_twice(logs: Logs, chosen: tuple[Commit, int]) -> None:
    commit, again = chosen

    def change(one: Commit) -> Commit:
        columns = zip(one.operations.receive_endpoints, one.operations.receive_positions, strict=True)
        positions = [0 if index == again else position for index, position in columns]
        return replace(one, operations=replace(one.operations, receive_positions=positions))

    rewrite(logs, commit.number, change)


def _without_error(logs: Logs, everywhere: History) -> list[object]:
    """COMMITs that receive messages but no Error."""
    found = [commit for commit in receiving(logs, everywhere) if isinstance(commit, Commit)]
    return [commit for commit in found if not any(position & 1 for position in commit.operations.receive_positions)]


@damage(_without_error)
def an_error_is_consumed_that_never_came(logs: Logs, commit: Commit) -> None:
    def change(one: Commit) -> Commit:
        positions = [position | 1 for position in one.operations.receive_positions]
        return replace(one, operations=replace(one.operations, receive_positions=positions))

    rewrite(logs, commit.number, change)


@damage(any_commit)
def a_commit_acknowledges_what_was_never_sent(logs: Logs, commit: Commit) -> None:
    rewrite(logs, commit.number, lambda one: replace(one, output_acks=[(logs.place.address, 10_000)]))


@damage(any_commit)
def a_commit_names_a_missing_endpoint(logs: Logs, commit: Commit) -> None:
    def change(one: Commit) -> Commit:
        return replace(one, operations=replace(one.operations, ends=[EndOperation(10_000)]))

    rewrite(logs, commit.number, change)


@damage(receiving)
def a_conversation_is_ended_twice(logs: Logs, commit: Commit) -> None:
    def change(one: Commit) -> Commit:
        ends = [EndOperation(one.operations.receive_endpoints[0])] * 2
        return replace(one, operations=replace(one.operations, ends=ends))

    rewrite(logs, commit.number, change)


@damage(lambda logs, _: [c for _, c in counting(logs)[1:] if c.ingest_to])
def a_commit_goes_back_in_the_data(logs: Logs, commit: Commit) -> None:
    rewrite(logs, commit.number - 1, lambda one: replace(one, ingest_to=commit.ingest_to + 1))
    logs.place = logs.place._replace(data_end=logs.place.data_end + 9)


@damage(lambda logs, _: [c for _, c in counting(logs)[-1:] if c.ingest_to])
def the_tail_of_the_data_is_gone(logs: Logs, commit: Commit) -> None:
    logs.place = logs.place._replace(data_end=commit.ingest_to - 1)


@damage(any_commit)
def the_beginning_of_the_journal_is_gone(logs: Logs, _commit: Commit) -> None:
    logs.place = logs.place._replace(journal_start=1)
    del logs.journal[0]


@damage(any_commit)
def the_beginning_of_the_data_is_gone(logs: Logs, _commit: Commit) -> None:
    logs.place = logs.place._replace(data_start=1)


@damage(single_voiced)
def a_message_has_another_number(logs: Logs, at: int) -> None:
    envelope = envelope_of(logs.data[at])
    assert envelope is not None
    relabel(logs, at, sequence=envelope.sequence + 1)


def _finished(logs: Logs, _: History) -> list[object]:
    """Indexes of FIRST records of conversations that are over. A NAMED one comes back, or begins again by right."""
    verdict = judge(logs.place, logs.journal, logs.data, ())
    over = {side.key[1] for side in verdict.fold.sides if side.gone}
    over -= {key[1] for key in verdict.fold.living}
    return [at for at, e in messages(logs) if e.flags & (FIRST | NAMED) == FIRST and e.conversation in over]


@damage(_finished)
def a_finished_conversation_lives_again(logs: Logs, at: int) -> None:
    envelope = envelope_of(logs.data[at])
    assert envelope is not None
    last = logs.place.data_end
    suffix = envelope.suffix._replace(origin=None)
    header = encode_envelope(envelope._replace(writer=b"a new writer now", counter=0, suffix=suffix))
    logs.data.append(logs.data[at]._replace(offset=last, header=header))
    logs.place = logs.place._replace(data_end=last + 1, certain_to=last + 1)
    number = counting(logs)[-1][1].number
    rewrite(logs, number, lambda one: replace(one, ingest_to=last + 1))


DAMAGES: Final[dict[str, tuple[Damage, set[str]]]] = {
    "a message is lost": (a_message_is_lost, {"I3", "I7"}),
    "an output has another body": (an_output_has_another_body, {"I8"}),
    "an output has another type": (an_output_has_another_type, {"I8"}),
    "an output goes to another conversation": (an_output_goes_to_another_conversation, {"I8"}),
    "an output has another number": (an_output_has_another_number, {"I8"}),
    "an output came from no commit": (an_output_came_from_no_commit, {"I8"}),
    "an acknowledged output is not there": (an_acknowledged_output_is_not_there, {"lost"}),
    "a commit is missing": (a_commit_is_missing, {"I17"}),
    "a commit was changed": (a_commit_was_changed, {"I17"}),
    "a commit says other bodies": (a_commit_says_other_bodies, {"I8"}),
    "a commit says fewer outputs": (a_commit_says_fewer_outputs, {"I8"}),
    "outputs of a commit that does not count": (outputs_of_a_commit_that_does_not_count, {"I8"}),
    "a message is consumed that never came": (a_message_is_consumed_that_never_came, {"I7"}),
    "a message is consumed twice": (a_message_is_consumed_twice, {"I7"}),
    "an error is consumed that never came": (an_error_is_consumed_that_never_came, {"I7"}),
    "a commit acknowledges what was never sent": (a_commit_acknowledges_what_was_never_sent, {"I8"}),
    "a commit names a missing endpoint": (a_commit_names_a_missing_endpoint, {"I3"}),
    "a conversation is ended twice": (a_conversation_is_ended_twice, {"I9", "I3"}),
    "a commit goes back in the data": (a_commit_goes_back_in_the_data, {"I17"}),
    "the tail of the data is gone": (the_tail_of_the_data_is_gone, {"lost"}),
    "the beginning of the journal is gone": (the_beginning_of_the_journal_is_gone, {"cut"}),
    "the beginning of the data is gone": (the_beginning_of_the_data_is_gone, {"cut"}),
    "a message has another number": (a_message_has_another_number, {"I5", "I8"}),
    "a finished conversation lives again": (a_finished_conversation_lives_again, {"I9"}),
}
"""Name → the damage, and the invariants of which the verifier must report at least one."""
