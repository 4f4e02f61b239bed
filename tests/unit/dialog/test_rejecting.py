"""Messages that their receiver rejects (behaviours 4, 6, 131): decided once by the owner, recorded in its COMMIT."""

from __future__ import annotations

from uuid import UUID

import pytest

from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import Append, DataRead, Stopped, Tick
from konverse.dialog.state.endpoint import Endpoint, Terms
from konverse.dialog.state.transitions import State
from konverse.schemas.errors import KafkaUnavailable
from konverse.schemas.identifiers import Role
from konverse.schemas.levels import DEFAULT_LEVEL
from konverse.schemas.limits import COMMIT_FAULT_ENTRIES_MAX, FAULT_CHARACTERS_MAX, LOOK_AHEAD_RECORDS_MAX
from konverse.schemas.system_messages import Rejection, read_error
from konverse.schemas.wire.envelope import decode as decode_envelope
from konverse.schemas.wire.journal import Commit, decode
from konverse.schemas.wire.records import Kind
from tests.kit.builders import (
    Row,
    Scribe,
    address_of,
    begin_block,
    columns_of,
    conversations,
    identifier,
    record,
    records_of,
)
from tests.kit.digests import digest
from tests.kit.driver import Driver

BAD = b"bad"
XML = 9615
FAULT = "not well-formed (invalid token): line 1, column 1"
WHY = Rejection(XML, FAULT)


class Sceptic:
    """Rejects the body BAD, and records its questions."""

    def __init__(self, *, examines: bool) -> None:
        self.asked: list[bytes | None] = []
        self._examines = examines

    def verdict(self, terms: Terms, role: Role, message_type: str, body: bytes | None) -> Rejection | None:
        assert (terms.contract, role, bool(message_type)) == (begin_block().contract, Role.TARGET, True)
        self.asked.append(body)
        return WHY if body == BAD else None

    def level(self, contract: str, local_service: str, remote_service: str) -> int:
        return DEFAULT_LEVEL

    def examines(self, message_type: str) -> bool:
        assert message_type
        return self._examines


def owner_that_asks(judge: Sceptic) -> Driver:
    driver = Driver()
    driver.owner.staging.judge = judge
    driver.lead()
    return driver


@pytest.fixture
def sceptic() -> Sceptic:
    return Sceptic(examines=True)


@pytest.fixture
def driver(sceptic: Sceptic) -> Driver:
    return owner_that_asks(sceptic)


def messages(*bodies: bytes, name: str = "a") -> list[Row]:
    """A conversation of these messages."""
    client, conversation = Scribe("client"), identifier(name)
    first = client.first(address_of(), conversation, begin_block(group=conversation))
    others = [client.message(address_of(), conversation, sequence=at) for at in range(1, len(bodies))]
    return [(header, record(body)) for header, body in zip([first, *others], bodies, strict=True)]


def target(driver: Driver) -> Endpoint:
    found = driver.state.endpoint(Role.TARGET, identifier("a"))
    assert found is not None
    return found


def committed(driver: Driver) -> tuple[list[tuple[int, Rejection]], list[tuple[Kind, bytes | None]]]:
    """The rejections of the next commit, and the kinds and bodies of its outputs."""
    emitted = [effect for effect in driver.commit() if isinstance(effect, Emit)]
    commit = decode(driver.journal[-1])
    assert isinstance(commit, Commit)
    rows = [row for emit in emitted for row in records_of(emit)]
    return [*commit.rejected], [(decode_envelope(header).kind, body) for header, _, body in rows]


def test_a_rejected_message_gives_both_sides_an_error_and_earlier_messages_can_still_be_received(
    driver: Driver,
) -> None:
    driver.arrive(*messages(b"good", BAD))
    rejected, told = committed(driver)
    assert rejected == [(1, WHY)]
    ((kind, body),) = told
    assert (kind, read_error(body or b"")[0]) == (Kind.ERROR, -XML)
    assert target(driver).state is State.ERROR
    assert [read_error(m.body)[0] if m.sequence < 0 else m.body for m in driver.handle()] == [-XML, b"good"]


@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_the_error_names_the_fault_the_conversation_the_side_and_the_message_number(
    driver: Driver, accepted: int
) -> None:
    """In the words of the original's error 9615, and the same in every fold of the journal."""
    driver.arrive(*messages(*[b"good"] * accepted, BAD))
    _, ((_, body),) = committed(driver)
    code, words = read_error(body or b"")
    assert code == -XML
    assert words.endswith(
        f": {FAULT}. This occurred in the message with Conversation ID '{UUID(bytes=identifier('a'))}', Initiator: 0, "
        f"and Message sequence number: {accepted}."
    )
    after = Driver(driver.journal, driver.data, "next")
    after.recover()
    if accepted:
        assert [entry[2] for entry in target(after).urgent] == [body]


def test_a_target_whose_first_message_is_rejected_learns_nothing_of_it(driver: Driver) -> None:
    driver.arrive(*messages(BAD, b"good"))
    rejected, told = committed(driver)
    assert (rejected, [kind for kind, _ in told]) == ([(0, WHY)], [Kind.ERROR])
    assert (target(driver).state, driver.owner.take()) == (State.DISCONNECTED_OUTBOUND, None)
    assert driver.state.statistics.discarded == 2


def test_messages_after_a_rejected_message_bounce(driver: Driver) -> None:
    driver.arrive(*messages(b"good", BAD, b"good too"))
    assert committed(driver)[0] == [(1, WHY)]
    assert driver.state.statistics.bounced == 1


def test_a_recovering_owner_repeats_rejections_without_asking_the_judge(driver: Driver, sceptic: Sceptic) -> None:
    driver.arrive(*messages(b"good", b"good", b"good", BAD), *conversations("b", client=Scribe("other")))
    driver.commit()
    driver.arrive(*conversations("c", client=Scribe("another")))
    assert committed(driver)[0] == [], "it is said once"
    asked = len(sceptic.asked)
    after = Driver(driver.journal, driver.data, "next")
    after.recover()
    after.state.now_ms = driver.state.now_ms  # that of the later CLAIM
    assert (digest(after.state), len(sceptic.asked)) == (digest(driver.state), asked)


@pytest.mark.parametrize(("examines", "asked"), [(True, 5), (False, 2)])
def test_each_body_is_asked_about_when_the_verdict_depends_on_it(examines: bool, asked: int) -> None:
    """Otherwise two bodies are judged: FIRST has another header."""
    judge = Sceptic(examines=examines)
    owner_that_asks(judge).arrive(*messages(*[b"good"] * 5))
    assert len(judge.asked) == asked


def test_the_next_owner_validates_a_writer_whose_messages_were_predicted(sceptic: Sceptic) -> None:
    before = Driver(claim="before")
    before.lead()
    before.arrive(*messages(*[b"good"] * 3)[:3])
    before.commit()
    after = Driver(before.journal, before.data, "next")
    after.owner.staging.judge = sceptic
    after.lead()
    after.arrive(messages(*[b"good"] * 3, BAD)[3])
    assert (sceptic.asked, committed(after)[0]) == ([BAD], [(3, WHY)])


def test_an_owner_stops_when_it_cannot_get_a_verdict_and_the_next_owner_asks_again(
    sceptic: Sceptic, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = owner_that_asks(sceptic)

    def away(*_: object) -> Rejection | None:
        raise KafkaUnavailable("no broker answers")

    with monkeypatch.context() as patched:
        patched.setattr(sceptic, "verdict", away)
        driver.arrive(*messages(b"good"))
    (stopped,) = driver.step(Tick())
    assert isinstance(stopped, Stopped)
    assert "no broker answers" in stopped.reason
    assert (stopped.clean, stopped.fenced) == (False, False)
    after = Driver(driver.journal, driver.data, "next")
    after.owner.staging.judge = sceptic
    after.lead()
    after.step(DataRead(columns_of(driver.data)))
    assert after.owner.ingest(after.now_ms) == 1
    assert sceptic.asked == [b"good"]


class Hopeless(Sceptic):
    """Rejects every body, with the longest fault."""

    def verdict(self, terms: Terms, role: Role, message_type: str, body: bytes | None) -> Rejection | None:
        assert super().verdict(terms, role, message_type, body) is None
        return Rejection.of(XML, "\u4e2d" * FAULT_CHARACTERS_MAX)


def test_a_commit_has_room_for_every_message_that_a_look_ahead_may_reject() -> None:
    """Senders whose schema was changed by mistake go on sending. Only the first faults are quoted."""
    driver, client = owner_that_asks(Hopeless(examines=True)), Scribe("client")
    names = [number.to_bytes(16, "big") for number in range(1, LOOK_AHEAD_RECORDS_MAX + 1)]
    driver.arrive(*((client.first(address_of(), one, begin_block(group=one)), record(b"x")) for one in names))
    assert not driver.owner.has_room, "further messages wait for the commit"
    rejected = [*driver.owner.fold.state.rejected.values()]
    assert len(rejected) == LOOK_AHEAD_RECORDS_MAX
    assert [bool(one.fault) for one in rejected] == [at < COMMIT_FAULT_ENTRIES_MAX for at in range(len(rejected))]
    (append,) = driver.owner.commit(driver.now_ms)
    assert isinstance(append, Append)
    driver.acknowledge(append)
    assert driver.owner.has_room
