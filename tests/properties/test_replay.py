"""The state of a living owner is the fold of its logs, in whatever pieces they are read (invariant I3)."""

from __future__ import annotations

from itertools import chain
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from konverse.dialog.owner.events import Append, DataRead, Drained, ReadData, ReadJournal, Recover
from tests.kit.builders import Row, Scribe, begin_block, columns_of, record
from tests.kit.digests import digest
from tests.kit.driver import Driver
from tests.properties.scripts import CONVERSATIONS, HERE, Step, rows_of, scripts

WORK: Final = ["arrive", "arrive", "handle", "handle", "begin", "peek", "fail", "commit", "commit", "drain"]
works: Final = st.lists(
    st.lists(st.tuples(st.sampled_from(WORK), st.integers(0, 9)), max_size=8), min_size=3, max_size=8
).map(lambda parts: [*chain.from_iterable(parts)])


def opening() -> list[Row]:
    """Records that create both sides of two conversations."""
    founder = Scribe("founder")
    rows: list[Row] = []
    for conversation in CONVERSATIONS[:2]:
        rows.append((founder.first(HERE, conversation, begin_block()), record()))
        rows.append((founder.begin(conversation, begin_block(home="orders", target="replies")), record()))
    return rows


class Life:
    """An owner at work."""

    def __init__(self, rows: list[Row]) -> None:
        self.driver = Driver(max_messages=3)
        self.driver.lead()
        self.driver.arrive(*opening())
        self.rows = rows

    def do(self, what: str, number: int) -> None:
        match what:
            case "arrive":
                arrived, self.rows = self.rows[:number], self.rows[number:]
                self.driver.arrive(*arrived)
            case "commit":
                self.commit()
            case "drain":
                self.driver.step(Drained(list(self.driver.owner.emitter.windows)))
            case _:
                self.handle(what, number)

    def handle(self, what: str, number: int) -> None:
        """A handler takes a group and receives, sends, ends, or fails."""
        transaction = self.driver.owner.take()
        if transaction is None:
            return
        messages = iter(transaction)
        dialogs = [message.dialog for message, _ in zip(messages, range(number % 4), strict=False)]
        if what == "fail":
            self.driver.owner.trial.fail(transaction)
            return
        for dialog in dialogs if what == "handle" else []:
            if dialog.state.code in {"SO", "CO"}:
                transaction.send(dialog, "reply" if number % 2 else "other", bytes(number))
        if number > 6 and dialogs and dialogs[0].state.code not in {"DO", "CD"}:
            transaction.end(dialogs[0], error=number - 7, description="too much" if number > 7 else "")
        self.driver.owner.finish(transaction)

    def commit(self) -> None:
        for append in self.driver.owner.commit(0):
            self.driver.acknowledge(append)


def recovered(life: Life, pieces: int) -> Driver:
    """Another process reads both logs, `pieces` records at a time."""
    reader = Driver(life.driver.journal, life.driver.data, "a reader")
    todo = reader.owner.step(Recover(0, len(reader.journal)), 0)
    while not isinstance(todo[0], Append):
        (effect,) = todo
        if isinstance(effect, ReadJournal):
            todo = reader.owner.step(reader.journal_read(effect.start, min(effect.end, effect.start + pieces)), 0)
        else:
            assert isinstance(effect, ReadData)
            rows = reader.data[effect.start : effect.start + pieces]
            todo = reader.owner.step(DataRead(columns_of(rows, effect.start)), 0)
    return reader


@given(scripts, works, st.sampled_from([1, 2, 3, 7, 1000]))
def test_a_recovering_owner_comes_to_the_state_of_the_one_before(
    script: list[Step], work: list[tuple[str, int]], pieces: int
) -> None:
    life = Life(rows_of(script))
    for what, number in work:
        life.do(what, number)
    life.commit()
    reader = recovered(life, pieces)
    assert digest(reader.state) == digest(life.driver.state)
    assert reader.state.unread == life.driver.state.unread
    assert reader.owner.fold.head == life.driver.owner.fold.head
