"""A small run, as told by its processes and topics, made by hand. It is correct; tests damage it.

Two conversations go from a session to the queue Orders. Its owner answers every order with two receipts. The owner of
the queue Shop is the second writer of the first conversation, and both sides end the second conversation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from tests.chaos.history import Line, brief
from tests.chaos.topics import Facts, Partition, Talk, Topics, Word

ORDERS: Final = "orders/0"
ELSEWHERE: Final = "orders/1"
SHOP: Final = "shop/0"
OWNER: Final = "aa"
CLERK: Final = "bb"
FIRST: Final = "c1"
SECOND: Final = "c2"
INITIATOR: Final = 0
TARGET: Final = 1


@dataclass
class Story:
    """History and topics of a run."""

    lines: list[Line] = field(default_factory=list)
    topics: Topics = field(default_factory=Topics)
    folded_again: dict[str, dict[tuple[str, int], Facts]] = field(default_factory=dict)

    # ---------------------------------------------------------------------------------------------------- finding

    def talk(self, conversation: str, role: int) -> Talk:
        return next(talk for talk in self.topics.talks if (talk.conversation, talk.role) == (conversation, role))

    def where(self, op: str, kind: str, **fields: Any) -> Line:
        return next(
            line
            for line in self.lines
            if (line["op"], line["type"]) == (op, kind) and all(line.get(name) == v for name, v in fields.items())
        )

    def drop(self, op: str, kind: str, **fields: Any) -> None:
        self.lines.remove(self.where(op, kind, **fields))

    # ----------------------------------------------------------------------------------------------------- making

    def line(self, op: str, kind: str, process: str = "client", **fields: Any) -> None:
        self.lines.append({"t": float(len(self.lines)), "process": process, "op": op, "type": kind, **fields})

    def send(self, conversation: str, n: int) -> None:
        """The session sends a message, and it arrives."""
        body = brief(b"%s/%d" % (conversation.encode(), n))
        self.line("send", "invoke", conversation=conversation, n=n, body=body)
        self.line("send", "ok", conversation=conversation, n=n)
        self.talk(conversation, TARGET).heard.append(Word(body))

    def run(
        self, place: str, owner: str, number: int, take: tuple[str, int, int], *sends: str, ends: bool = False
    ) -> None:
        """A handler receives message n of a side and answers it with these bodies, and its commit counts."""
        conversation, role, n = take
        talk, there = self.talk(conversation, role), self.talk(conversation, 1 - role)
        name = f"{place}#{number}"
        self.line(
            "transaction",
            "invoke",
            id=name,
            place=place,
            owner=owner,
            takes=[[conversation, role, n, talk.heard[n].body]],
            sends=[[conversation, role, brief(body.encode())] for body in sends],
            ends=[[conversation, role]] if ends else [],
        )
        self.line("commit", "invoke", place=place, owner=owner, number=number, transactions=[name])
        self.line("commit", "ok", place=place, owner=owner, number=number)
        talk.consumed.append(number)
        self.topics.partitions[place].commits[number] = owner
        for body in sends:
            there.heard.append(Word(brief(body.encode())))
            self.topics.said[brief(body.encode())] += 1
        if ends:
            talk.ended = True
            if not there.ended:  # else the END is the peer's answer, which is not received
                there.heard.append(Word("", ends=True))

    def settle(self) -> None:
        """The processes write their folds, and the logs are folded again."""
        for place, owner in ((ORDERS, OWNER), (SHOP, CLERK)):
            sides: dict[tuple[str, int], Facts] = {}
            for talk in self.topics.talks:
                forgotten = talk.ended and self.talk(talk.conversation, 1 - talk.role).ended
                if talk.place == place and not forgotten:
                    talk.facts = ("CO", 0, len(talk.heard), len(talk.consumed), 0, False)
                    sides[talk.conversation, talk.role] = talk.facts
            self.folded_again[place] = sides
            rows = [[*key, *facts] for key, facts in sides.items()]
            self.line("state", "ok", process=f"owner of {place}", place=place, owner=owner, sides=rows)


def moved(story: Story) -> None:
    """The target of the first conversation had moved to another partition before it received its last message."""
    story.topics.partitions = {ELSEWHERE: Partition(ELSEWHERE, {1: OWNER}, [OWNER]), **story.topics.partitions}
    del story.topics.partitions[ORDERS].commits[4]
    for kind in ("invoke", "ok"):
        story.where("commit", kind, place=ORDERS, number=4).update(place=ELSEWHERE, number=1)
    talk = story.talk(FIRST, TARGET)
    talk.place, talk.consumed[3] = ELSEWHERE, 1
    for place in (ORDERS, SHOP):
        story.drop("state", "ok", place=place)
    story.settle()


def redirected(story: Story, body: str) -> None:
    """A message of the first conversation came back and was redirected, as the first message of the second one."""
    story.line("send", "invoke", conversation=FIRST, n=3, body=body)
    story.line("send", "ok", conversation=FIRST, n=3)
    story.line("redirect", "invoke", conversation=SECOND, body=body)
    story.topics.redirected[body] = {SECOND}
    story.talk(SECOND, TARGET).heard.insert(3, Word(body))


def told() -> Story:
    """A run without errors."""
    story = Story()
    for place, owner in ((ORDERS, OWNER), (SHOP, CLERK)):
        story.topics.partitions[place] = Partition(place, claims=[owner])
        story.line("lead", "ok", process=f"owner of {place}", place=place, owner=owner)
    for conversation in (FIRST, SECOND):
        story.topics.talks += [Talk(conversation, INITIATOR, SHOP), Talk(conversation, TARGET, ORDERS)]
        for n in range(3):
            story.send(conversation, n)
    for n in range(3):
        story.run(ORDERS, OWNER, n + 1, (FIRST, TARGET, n), f"{n} a", f"{n} b")
    for n in range(6):
        story.run(SHOP, CLERK, n + 1, (FIRST, INITIATOR, n), *(["note"] if n == 5 else []))
    story.run(ORDERS, OWNER, 4, (FIRST, TARGET, 3))
    for n in range(3):
        story.run(ORDERS, OWNER, n + 5, (SECOND, TARGET, n), ends=n == 2)
    story.run(SHOP, CLERK, 7, (SECOND, INITIATOR, 0), ends=True)
    story.settle()
    return story
