"""Strangers with write access to a data log, who write in the name of sessions (protocol.md section 9f).

Their records cannot be told from the session's own. The promise is therefore that every record is taken once, and
that every session is heard: a record that Kafka acknowledged is accepted, or comes back, or its session is notified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from konverse.bridge.verifier.check import Finding
from konverse.bridge.verifier.fold.fold import SecondFold
from konverse.dialog.session.rotation import forgeries_told
from konverse.schemas.errors import MalformedRecord
from konverse.schemas.identifiers import Address, Role, time_of_writer
from konverse.schemas.system_messages import END_DIALOG, ERROR
from konverse.schemas.wire.envelope import decode, encode_envelope
from konverse.schemas.wire.records import ACKED, FIRST, HEIR, NO_SEQUENCE, End, Envelope, Kind, Suffix

if TYPE_CHECKING:
    from .kafka import Record
    from .places import Place
    from .sending import SessionProcess
    from .world import World

TRUE_OF_FORGERIES: Final = ("I5", "I6", "I9", "I20", "I23")
"""Rules whose findings are expected when records are forged."""

DROPPED: Final = "the second was dropped"
"""This finding of I23 is not excused."""

COPIED: Final = (Kind.MESSAGE, Kind.BEGIN, Kind.END_CALL, Kind.FIN, Kind.TRANSACTION)


class Forgers:
    """The forgeries of a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.struck = 0
        self.claimed = False
        """Whether a stranger has claimed that records are lost: those that come nevertheless are not received."""
        self.closed: set[bytes] = set()
        """Sessions that strangers closed in some partition: it refuses their records and notifies them."""

    def strike(self) -> None:
        """Sometimes copy the header of a session's record and write a forgery."""
        world, choices = self._world, self._world.choices
        if not choices.chance(world.swarm.forgers):
            return
        place = choices.pick(world.places)
        copied = [one for one in _envelopes(place) if one.kind in COPIED and time_of_writer(one.writer) is not None]
        if not copied:
            return
        one = choices.pick(copied)
        following = 1 + max(other.counter for other in copied if other.writer == one.writer)
        self.struck += 1
        flags = one.flags & ~(FIRST | ACKED)
        message = one._replace(kind=Kind.MESSAGE, flags=flags, suffix=Suffix("t", home=one.suffix.home))
        match choices.choose(7):
            case 0 | 1:
                for ahead in range(1 + choices.choose(3)):
                    self._write(place, message, counter=following + ahead, sequence=NO_SEQUENCE)
                world.sometimes.happened("forged next")
            case 2:
                self._write(place, message, counter=following + 1 + choices.choose(9))
                world.sometimes.happened("forged far")
            case 6:
                self.claimed = True
                self._write(place, message, counter=following + 1 + choices.choose(9), flags=flags | ACKED)
                world.sometimes.happened("forged as acknowledged")
            case 3:
                self._write(place, one)
                world.sometimes.happened("forged again")
            case 4:
                end = End(one.writer, one.suffix.home or place.address)
                kind, name = ((Kind.END, END_DIALOG), (Kind.ERROR, ERROR))[choices.choose(2)]
                self._write(place, message, counter=following, kind=kind, suffix=Suffix(name, detail=end))
                world.sometimes.happened("forged end")
            case _:
                stranger = world.identifier(b"forger")
                self.closed.add(one.writer)
                flags = HEIR * choices.choose(2)
                self._write(
                    place, one, kind=Kind.CLOSE_WRITER, flags=flags, writer=stranger, conversation=one.writer,
                    counter=0, sequence=NO_SEQUENCE, suffix=Suffix(home=one.suffix.home), role=Role.INITIATOR,
                )  # fmt: skip
                world.sometimes.happened("forged close")

    def closed_one_of(self, session: SessionProcess) -> bool:
        """A stranger has closed this session under one of its ids."""
        return not self.closed.isdisjoint(session.session.ids)

    def _write(self, place: Place, envelope: Envelope, **changes: object) -> None:
        header = encode_envelope(envelope._replace(**changes))  # type: ignore[arg-type]
        self._world.kafka.append(place.data, (header, envelope.writer, b"forged %d" % self._world.new_message()))


def _records(place: Place) -> Iterator[tuple[Record, Envelope]]:
    for record in place.data.records:
        with suppress(MalformedRecord):
            envelope = decode(record.header or b"")
            if envelope.tag == place.address.tag:
                yield record, envelope


def _envelopes(place: Place) -> Iterator[Envelope]:
    return (envelope for _, envelope in _records(place))


def honest(findings: Iterable[Finding], *, forged: bool) -> list[Finding]:
    """The findings that contradict a promise which holds in spite of forgeries."""
    return [one for one in findings if not forged or one.rule not in TRUE_OF_FORGERIES or DROPPED in one.text]


def check_forgeries(world: World, references: Mapping[Address, SecondFold]) -> Iterator[str]:
    """Check that records acknowledged to sessions were taken, and that no forged message was received twice."""
    if not world.forgers.struck:
        if any(reference.tally["forged"] for reference in references.values()):
            yield "I23: records are called contested that were never forged"
        return
    heard = (one for reference in references.values() for side in reference.sides for one in side.heard[side.brought :])
    for body, times in Counter(one.body for one in heard if one.body.startswith(b"forged")).items():
        if times > 1:
            yield f"I6: {body!r} was received {times} times"
    for place in world.places:
        reference = references[place.address]
        written = {(record.header, record.body or b""): record.offset for record, _ in reversed([*_records(place)])}
        for (writer, address, counter), (header, _, value) in world.history.handed.items():
            if address != place.address or counter >= world.history.acknowledged.get((writer, address), 0):
                continue
            if writer in world.history.skewed or (header, value or b"") not in written:
                continue  # never acknowledged: another record has its counter
            passed_over = any(counter in gap.counters for gap in reference.losses.missed.get(writer, ()))
            if passed_over:  # a forged record reported these as lost: each one is answered when it comes
                continue
            if not reference.contents.knows(writer, counter, header or b"", value or b""):
                yield f"I6: {counter} of {writer.hex()} was acknowledged, and {address} has dropped it"
    _count(world, references)


def _count(world: World, references: Mapping[Address, SecondFold]) -> None:
    """Count rare paths."""
    for reference in references.values():
        for (writer, counter), verdict in reference.verdicts.items():
            if counter < 0 and time_of_writer(writer) is not None:
                states = [place.shadow.state for place in world.places]
                told = [notice for home in states for notice in forgeries_told(home, [writer], [reference.address])]
                world.sometimes.happened("told of a forgery", len(told))
                world.sometimes.happened("forged after a close", verdict in ("closed", "bounced WRITER_CLOSED"))
