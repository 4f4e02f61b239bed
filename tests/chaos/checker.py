"""Compares actions and beliefs of the processes with the topics, and names every contradiction.

The judgement comes after the faults have ended and the system had time to finish. So a missing message is lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from konverse.schemas.identifiers import Role

from .deeds import UNKNOWN, Deeds, Send, Sent, Take, Transaction
from .history import Line
from .topics import Facts, Partition, SideKey, Talk, Topics, living

LOST: Final = "lost"
DUPLICATE: Final = "duplicate"
REORDER: Final = "reorder"
PHANTOM: Final = "phantom"
ABORTED_READ: Final = "aborted read"
TORN: Final = "torn"
FALSE_BELIEF: Final = "false belief"
AFTER_END: Final = "after end"
DIVERGENCE: Final = "divergence"
UNSEEN: Final = "unseen"
BROKEN: Final = "broken"

ANOMALIES: Final = {
    LOST: "a message that Kafka acknowledged, or an output of a commit that counts, was not received",
    DUPLICATE: "a message was accepted or received twice",
    REORDER: "messages of one writer were accepted or received in another order, or with one left out",
    PHANTOM: "a message was accepted that no process sent there",
    ABORTED_READ: "a message was accepted whose commit does not count",
    TORN: "only a part of the messages of one handler run, or of one transaction of a client, was accepted",
    FALSE_BELIEF: "a process believes that a commit or claim counts when it does not, or the reverse",
    AFTER_END: "something was accepted, received or sent on a side that was over, or a side lives twice",
    DIVERGENCE: "two folds of the same logs differ",
    UNSEEN: "something waits for ever although all faults have ended",
    BROKEN: "a partition stopped, or its logs contradict themselves",
}
"""Name → its meaning."""

BY_RULE: Final = {
    "I3": DIVERGENCE,
    "I5": REORDER,
    "I6": DUPLICATE,
    "I7": DUPLICATE,
    "I8": PHANTOM,
    "I9": AFTER_END,
    "I10": DUPLICATE,
    "I17": BROKEN,
    "I19": TORN,
    "lost": LOST,
    "cut": BROKEN,
    "view": DIVERGENCE,
    "I20": REORDER,
    "I4": DUPLICATE,
    "I23": PHANTOM,
}
"""Rule of a verifier's finding → name of the anomaly."""

Folds = Mapping[str, Mapping[SideKey, Facts]]
"""Partition → states of all living sides."""


class Anomaly(NamedTuple):
    """A contradiction."""

    name: str
    """A key of `ANOMALIES`."""
    where: str
    """A conversation, a partition or a process."""
    text: str


def check(lines: Iterable[Line], topics: Topics, folded_again: Folds | None = None) -> list[Anomaly]:
    """All anomalies. `folded_again` holds the states that a restarted product folds from the logs."""
    deeds = Deeds.of(lines)
    talks = {(talk.conversation, talk.role): talk for talk in topics.talks}
    return [
        *_verifier(topics),
        *_sends(deeds, topics, talks),
        *_together(deeds, topics, talks),
        *_words(deeds, topics),
        *_outputs(deeds, topics, talks),
        *_received(deeds, topics, talks),
        *_beliefs(deeds, topics),
        *_ends(deeds, topics),
        *_folds(deeds, topics, folded_again or {}),
        *_waiting(deeds, topics),
    ]


def _verifier(topics: Topics) -> Iterator[Anomaly]:
    for finding in topics.findings:
        yield Anomaly(BY_RULE[finding.rule], finding.partition, f"{finding.rule}: {finding.text}")


# ------------------------------------------------------------------------------------------------------------- sessions


def _sends(deeds: Deeds, topics: Topics, talks: Mapping[SideKey, Talk]) -> Iterator[Anomaly]:
    """Check that messages of sessions arrived, in order and without holes."""
    for conversation, sends in deeds.sends.items():
        talk = talks.get((conversation, Role.TARGET))
        heard = [word.body for word in talk.heard] if talk else []
        by_body = {send.body: send for send in sends}
        arrived = [by_body[body] for body in heard if body in by_body]
        for send in arrived:
            if send.outcome == "fail":
                yield Anomaly(FALSE_BELIEF, conversation, f"message {send.n} was refused, and it arrived")
        yield from _in_order(conversation, arrived)
        yield from _missing(conversation, sends, arrived, talk, topics)


def _in_order(conversation: str, arrived: Sequence[Send]) -> Iterator[Anomaly]:
    numbers = [*dict.fromkeys(send.n for send in arrived)]
    if numbers != [*range(len(numbers))]:
        at = next(at for at, n in enumerate(numbers) if at != n)
        yield Anomaly(REORDER, conversation, f"message {numbers[at]} of the session came where {at} was due")


def _missing(
    conversation: str, sends: Sequence[Send], arrived: Sequence[Send], talk: Talk | None, topics: Topics
) -> Iterator[Anomaly]:
    here = {send.n for send in arrived}
    acknowledged = (send for send in sends if send.outcome == "ok")
    missing = [send.n for send in acknowledged if send.n not in here and not _excused(send.body, talk, topics)]
    if missing:
        yield Anomaly(LOST, conversation, f"{len(missing)} acknowledged messages, the first of them {min(missing)}")


def _together(deeds: Deeds, topics: Topics, talks: Mapping[SideKey, Talk]) -> Iterator[Anomaly]:
    """Check that the messages of one client transaction all arrived, except late ones, or none did."""
    for name, sends in deeds.together.items():
        arrived = absent = 0
        for conversation, body in sends:
            talk = talks.get((conversation, Role.TARGET))
            here = talk is not None and any(word.body == body for word in talk.heard)
            arrived += here
            absent += not here and not _excused(body, talk, topics)
        if arrived and absent:
            yield Anomaly(TORN, name, f"{absent} of the {len(sends)} messages of a client's transaction did not arrive")


# --------------------------------------------------------------------------------------------------------------- words


def _words(deeds: Deeds, topics: Topics) -> Iterator[Anomaly]:
    """Check that each accepted message was sent on its conversation, and was accepted once.

    The sender of a handler's message must be a handler run in a commit that counts.
    """
    seen: Counter[str] = Counter(word.body for talk in topics.talks for word in talk.heard if not word.ends)
    for body, times in seen.items():
        if times > 1:
            yield Anomaly(DUPLICATE, body, f"it was accepted {times} times")
        if body in topics.returned:
            yield Anomaly(DUPLICATE, body, "it was accepted, and went back to its sender too")
    for talk in topics.talks:
        for n, word in enumerate(talk.heard):
            if word.ends:
                continue
            origin = deeds.origins.get(word.body)
            if origin is None:
                yield Anomaly(PHANTOM, talk.conversation, f"nobody sent message {n} of {Role(talk.role).name}")
            elif talk.conversation in deeds.redirects.get(word.body, set()) & topics.redirected.get(word.body, set()):
                continue
            elif (origin.conversation, origin.role) != (talk.conversation, 1 - talk.role):
                yield Anomaly(PHANTOM, talk.conversation, f"message {n} was sent on {origin.conversation}")
            elif origin.transaction and not topics.said[word.body]:
                text = f"message {n} is from handler run {origin.transaction}, which no commit that counts holds"
                yield Anomaly(ABORTED_READ, talk.conversation, text)


# ------------------------------------------------------------------------------------------------------------- outputs


def _outputs(deeds: Deeds, topics: Topics, talks: Mapping[SideKey, Talk]) -> Iterator[Anomaly]:
    """Check that the messages of a handler run went out together or not at all, and arrived in order."""
    sent: defaultdict[SideKey, list[str]] = defaultdict(list)
    for _, transaction in _counting(deeds, topics):
        for output in transaction.sends:
            sent[output.conversation, 1 - output.role].append(output.body)
    here = {(talk.conversation, talk.role, word.body) for talk in topics.talks for word in talk.heard}
    for transaction in deeds.transactions.values():
        there = [output for output in transaction.sends if (output.conversation, 1 - output.role, output.body) in here]
        yield from _whole(transaction, there, topics, talks)
    for key, bodies in sent.items():
        talk = talks.get(key)
        heard = [word.body for word in talk.heard] if talk else []
        due, known = set(bodies), set(heard)
        arrived = [body for body in dict.fromkeys(heard) if body in due]
        if arrived != [body for body in bodies if body in known]:
            yield Anomaly(REORDER, key[0], "outputs of commits were accepted in another order than they were committed")
        missing = sum(not _excused(body, talk, topics) for body in due - known)
        if missing:
            yield Anomaly(LOST, key[0], f"{missing} outputs of commits that count did not arrive")


def _excused(body: str, talk: Talk | None, topics: Topics) -> bool:
    """Whether this message came too late: it went back to its sender, or the receiving side had ended.

    A message that was redirected must have arrived on the other conversation, or have come too late there as well.
    """
    if body in topics.returned:
        return True
    again = [other for other in topics.talks if other.conversation in topics.redirected.get(body, ())]
    if any(word.body == body for other in again for word in other.heard):
        return True
    return body in topics.discarded and any(other is not None and other.ended for other in (talk, *again))


def _whole(
    transaction: Transaction, arrived: Sequence[Sent], topics: Topics, talks: Mapping[SideKey, Talk]
) -> Iterator[Anomaly]:
    sends = transaction.sends
    said = [output for output in sends if topics.said[output.body]]
    if 0 < len(said) < len(sends):
        yield Anomaly(TORN, transaction.id, f"commits that count hold {len(said)} of its {len(sends)} messages")
        return
    refused = [
        output
        for output in sends
        if output not in arrived and _excused(output.body, talks.get((output.conversation, 1 - output.role)), topics)
    ]
    if 0 < len(arrived) < len(sends) - len(refused):
        yield Anomaly(TORN, transaction.id, f"{len(arrived)} of the {len(sends)} messages that it sent arrived")


# ------------------------------------------------------------------------------------------------------------ handlers


def _counting(deeds: Deeds, topics: Topics) -> list[tuple[int, Transaction]]:
    """Handler runs of commits that count. Those of a conversation are in order, in whatever partitions it lived.

    The next run on a conversation begins after the commit of the previous one counts. So times give the order, and the
    logs must agree with it.
    """
    runs = (run for each in topics.partitions.values() for run in deeds.counting(each.name, each.commits))
    return sorted(runs, key=lambda run: run[1].at_s)


def _received(deeds: Deeds, topics: Topics, talks: Mapping[SideKey, Talk]) -> Iterator[Anomaly]:
    """Check that handler runs of commits that count received each accepted message once, in order."""
    got: defaultdict[SideKey, list[tuple[int, Take]]] = defaultdict(list)
    for number, transaction in _counting(deeds, topics):
        for take in transaction.takes:
            if take.n >= 0:  # an Error has no number
                got[take.conversation, take.role].append((number, take))
    for key in {**got, **talks}:
        talk = talks.get(key)
        heard = [word.body for word in talk.heard] if talk else []
        consumed = [*zip(talk.consumed if talk else [], range(len(heard)), heard, strict=False)]
        taken = [(number, take.n, take.body) for number, take in got[key]]
        if taken != consumed:
            yield _misreceived(key, [(n, body) for _, n, body in taken], [(n, body) for _, n, body in consumed])


def _misreceived(key: SideKey, taken: list[tuple[int, str]], consumed: list[tuple[int, str]]) -> Anomaly:
    conversation, numbers = key[0], [n for n, _ in taken]
    bodies = Counter(body for _, body in taken if body)
    if any(times > 1 for times in bodies.values()) or len(set(numbers)) < len(numbers):
        return Anomaly(DUPLICATE, conversation, "a message was received twice by commits that count")
    if any(after < before for before, after in pairwise(numbers)):
        return Anomaly(REORDER, conversation, f"messages were received as {numbers[:20]}")
    missing = sorted({*consumed} - {*taken})
    if missing:
        return Anomaly(LOST, conversation, f"message {missing[0][0]} was consumed, and no handler run received it")
    text = f"handler runs of commits that count received {len(taken)} messages, the logs say {len(consumed)}"
    return Anomaly(DIVERGENCE, conversation, text)


# ------------------------------------------------------------------------------------------------------------- beliefs


def _beliefs(deeds: Deeds, topics: Topics) -> Iterator[Anomaly]:
    for (place, owner, number), tried in deeds.commits.items():
        partition = topics.partitions.get(place)
        counts = partition is not None and partition.commits.get(number) == owner
        if tried.outcome != UNKNOWN and counts != (tried.outcome == "ok"):
            believed = "counts" if tried.outcome == "ok" else "does not count"
            yield Anomaly(FALSE_BELIEF, place, f"{owner} holds that its commit {number} {believed}; it is otherwise")
    for place, owner in deeds.leads:
        if owner not in (topics.partitions[place].claims if place in topics.partitions else ()):
            yield Anomaly(FALSE_BELIEF, place, f"{owner} holds that it has the partition, and its CLAIM does not count")


# ---------------------------------------------------------------------------------------------------------------- ends


def _ends(deeds: Deeds, topics: Topics) -> Iterator[Anomaly]:
    for (conversation, role), times in Counter((talk.conversation, talk.role) for talk in topics.talks).items():
        if times > 1:
            yield Anomaly(AFTER_END, conversation, f"its {Role(role).name} lived {times} times")
    for talk in topics.talks:
        if any(word.ends for word in talk.heard[:-1]):
            yield Anomaly(AFTER_END, talk.conversation, f"{Role(talk.role).name} accepted something after the END")
    for partition in topics.partitions.values():
        over: set[SideKey] = set()
        for number, transaction in deeds.counting(partition.name, partition.commits):
            touched = {(take.conversation, take.role) for take in transaction.takes}
            touched |= {(output.conversation, output.role) for output in transaction.sends}
            for conversation, _ in sorted(touched & over):
                yield Anomaly(AFTER_END, conversation, f"commit {number} works on a side that an earlier one ended")
            over.update(transaction.ends)


# --------------------------------------------------------------------------------------------------------------- folds


def _folds(deeds: Deeds, topics: Topics, folded_again: Folds) -> Iterator[Anomaly]:
    expected = living(topics)
    leaders = {name: _last_leader(deeds, partition) for name, partition in topics.partitions.items()}
    folds = [
        *((said.process, said.place, said.sides) for said in deeds.states if leaders.get(said.place) == said.owner),
        *((said.process, said.place, said.sides) for said in deeds.followed),
        *(("a new owner", place, sides) for place, sides in folded_again.items()),
    ]
    for who, place, sides in folds:
        theirs = expected.get(place, {})
        for key in {**sides, **theirs}:
            if sides.get(key) != theirs.get(key):
                text = f"{who} has {sides.get(key)} for {key[0]}, the verifier {theirs.get(key)}"
                yield Anomaly(DIVERGENCE, place, text)
                break  # one for each fold is enough


def _last_leader(deeds: Deeds, partition: Partition) -> str | None:
    """The last owner in the journal that led in this run. A replaced owner may not know that it was replaced.

    The times of history lines do not show the last owner: a process can be stopped before it writes its line.
    """
    return next((owner for owner in reversed(partition.claims) if (partition.name, owner) in deeds.leads), None)


def _waiting(deeds: Deeds, topics: Topics) -> Iterator[Anomaly]:
    for partition in topics.partitions.values():
        if partition.not_ingested:
            yield Anomaly(UNSEEN, partition.name, f"{partition.not_ingested} records were never ingested")
        if partition.not_delivered:
            yield Anomaly(UNSEEN, partition.name, f"{partition.not_delivered} outputs are not known to be delivered")
    for talk in topics.talks:
        unread = len(talk.heard) - len(talk.consumed)
        if unread > 0 and not talk.ended:
            yield Anomaly(UNSEEN, talk.conversation, f"{unread} messages of {Role(talk.role).name} wait to be received")
    for process, reason in deeds.stops:
        yield Anomaly(BROKEN, process, f"it stopped: {reason}")
