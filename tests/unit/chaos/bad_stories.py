"""Damages to a correct story, and the anomaly of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from konverse.bridge.verifier.check import Finding
from tests.chaos.history import brief
from tests.chaos.topics import Talk, Word
from tests.unit.chaos.stories import FIRST, INITIATOR, ORDERS, OWNER, SECOND, SHOP, TARGET, Story, moved, redirected

Spoil = Callable[[Story], object]

BAD: Final[dict[str, tuple[str, Spoil]]] = {}
"""Description of the damage → its anomaly, and the function that does it."""


def bad(anomaly: str) -> Callable[[Spoil], Spoil]:
    def put(spoil: Spoil) -> Spoil:
        BAD[spoil.__name__.replace("_", " ")] = (anomaly, spoil)
        return spoil

    return put


@bad("lost")
def an_acknowledged_message_is_not_in_the_log(story: Story) -> None:
    story.topics.talks.remove(story.talk(FIRST, TARGET))
    story.line("send", "invoke", conversation="c3", n=0, body=brief(b"c3"))
    story.line("send", "ok", conversation="c3", n=0)


@bad("lost")
def the_last_acknowledged_message_is_missing(story: Story) -> None:
    story.line("send", "invoke", conversation=FIRST, n=3, body=brief(b"late"))
    story.line("send", "ok", conversation=FIRST, n=3)


@bad("lost")
def an_end_arrives_and_a_message_before_it_does_not(story: Story) -> None:
    story.line("send", "invoke", conversation=FIRST, n=3, body=brief(b"before the end"))
    story.line("send", "ok", conversation=FIRST, n=3)
    talk = story.talk(FIRST, TARGET)
    talk.heard.append(Word("", ends=True))
    talk.ended = True


@bad("lost")
def an_answer_is_missing_before_the_end(story: Story) -> None:
    body = brief(b"before the end")
    story.where("transaction", "invoke", id=f"{ORDERS}#6")["sends"].append([SECOND, TARGET, body])
    story.topics.said[body] = 1


@bad("lost")
def two_messages_are_missing_and_one_went_back(story: Story) -> None:
    for n in (3, 4):
        story.line("send", "invoke", conversation=FIRST, n=n, body=brief(b"late %d" % n))
        story.line("send", "ok", conversation=FIRST, n=n)
    story.topics.returned.add(brief(b"late 4"))


@bad("lost")
def a_message_is_missing_and_one_of_another_writer_went_back(story: Story) -> None:
    story.line("send", "invoke", conversation=FIRST, n=3, body=brief(b"late"))
    story.line("send", "ok", conversation=FIRST, n=3)
    story.topics.returned.add(brief(b"a note of the clerk"))


@bad("lost")
def a_message_is_missing_on_a_side_that_ended(story: Story) -> None:
    story.line("send", "invoke", conversation=SECOND, n=3, body=brief(b"not even in the log"))
    story.line("send", "ok", conversation=SECOND, n=3)


@bad("lost")
def a_message_is_discarded_although_its_side_lives(story: Story) -> None:
    story.line("send", "invoke", conversation=FIRST, n=3, body=brief(b"late"))
    story.line("send", "ok", conversation=FIRST, n=3)
    story.topics.discarded.add(brief(b"late"))


@bad("lost")
def a_message_is_discarded_whose_side_never_was(story: Story) -> None:
    story.line("send", "invoke", conversation="c3", n=0, body=brief(b"c3"))
    story.line("send", "ok", conversation="c3", n=0)
    story.topics.discarded.add(brief(b"c3"))


@bad("lost")
def a_message_that_was_redirected_does_not_arrive(story: Story) -> None:
    redirected(story, brief(b"late"))
    story.talk(SECOND, TARGET).heard.remove(Word(brief(b"late")))


@bad("lost")
def an_output_is_missing_and_a_message_of_the_session_went_back(story: Story) -> None:
    body = brief(b"another note")
    story.where("transaction", "invoke", id=f"{SHOP}#5")["sends"].append([FIRST, INITIATOR, body])
    story.topics.said[body] = 1
    story.line("send", "invoke", conversation=FIRST, n=3, body=brief(b"late"))
    story.line("send", "ok", conversation=FIRST, n=3)
    story.topics.returned.add(brief(b"late"))


@bad("lost")
def an_output_is_missing_on_a_side_that_ended(story: Story) -> None:
    body = brief(b"one more answer")
    story.where("transaction", "invoke", id=f"{ORDERS}#6")["sends"].append([SECOND, TARGET, body])
    story.topics.said[body] = 1


@bad("lost")
def the_outputs_of_a_commit_that_counts_never_arrive(story: Story) -> None:
    talk = story.talk(FIRST, INITIATOR)
    del talk.heard[4:]
    del talk.consumed[4:]


@bad("lost")
def a_message_was_consumed_and_no_handler_received_it(story: Story) -> None:
    story.where("transaction", "invoke", id=f"{ORDERS}#2")["takes"].clear()


@bad("lost")
def the_verifier_misses_what_the_journal_calls_delivered(story: Story) -> None:
    story.topics.findings.append(Finding("lost", SHOP, "5 outputs acknowledged, 4 are here"))


@bad("duplicate")
def a_message_is_accepted_twice(story: Story) -> None:
    talk = story.talk(FIRST, TARGET)
    talk.heard.insert(1, talk.heard[0])


@bad("duplicate")
def an_answer_is_accepted_on_two_conversations(story: Story) -> None:
    story.talk(SECOND, INITIATOR).heard.insert(0, story.talk(FIRST, INITIATOR).heard[0])


@bad("duplicate")
def two_commits_that_count_receive_the_same_message(story: Story) -> None:
    line = story.where("transaction", "invoke", id=f"{ORDERS}#3")
    line["takes"] = story.where("transaction", "invoke", id=f"{ORDERS}#2")["takes"]


@bad("duplicate")
def a_handler_run_is_in_two_commits(story: Story) -> None:
    story.where("commit", "invoke", place=ORDERS, number=3)["transactions"].append(f"{ORDERS}#2")


@bad("duplicate")
def a_message_comes_again_under_the_next_number(story: Story) -> None:
    """As from a product without deduplication."""
    take = story.where("transaction", "invoke", id=f"{SHOP}#1")["takes"][0]
    story.where("transaction", "invoke", id=f"{SHOP}#6")["takes"].append([*take[:2], 6, take[3]])


@bad("duplicate")
def a_message_is_accepted_and_goes_back_too(story: Story) -> None:
    story.topics.returned.add(brief(b"c1/1"))


@bad("duplicate")
def a_message_arrives_although_it_was_redirected(story: Story) -> None:
    redirected(story, brief(b"late"))
    story.talk(FIRST, TARGET).heard.append(Word(brief(b"late")))


@bad("duplicate")
def a_message_is_redirected_and_waits_in_its_mailbox(story: Story) -> None:
    redirected(story, brief(b"late"))
    story.topics.returned.add(brief(b"late"))


@bad("duplicate")
def a_commit_consumes_more_than_there_is(story: Story) -> None:
    story.topics.findings.append(Finding("I7", ORDERS, "commit 3 consumes 9 of 4 messages"))


@bad("reorder")
def two_messages_of_a_session_change_places(story: Story) -> None:
    heard = story.talk(FIRST, TARGET).heard
    heard[0], heard[1] = heard[1], heard[0]


@bad("reorder")
def a_message_is_left_out_and_the_next_accepted(story: Story) -> None:
    story.drop("send", "ok", conversation=FIRST, n=1)  # its outcome is unknown, so it is not even lost
    del story.talk(FIRST, TARGET).heard[1]


@bad("reorder")
def the_answers_of_two_commits_change_places(story: Story) -> None:
    heard = story.talk(FIRST, INITIATOR).heard
    heard[0], heard[2] = heard[2], heard[0]


@bad("reorder")
def the_answers_of_one_handler_run_change_places(story: Story) -> None:
    heard = story.talk(FIRST, INITIATOR).heard
    heard[2], heard[3] = heard[3], heard[2]


@bad("reorder")
def handlers_receive_in_another_order(story: Story) -> None:
    first, second = (story.where("transaction", "invoke", id=f"{ORDERS}#{number}") for number in (1, 2))
    first["takes"], second["takes"] = second["takes"], first["takes"]


@bad("reorder")
def a_conversation_that_moves_is_worked_on_where_it_will_be_before_it_is_there(story: Story) -> None:
    moved(story)
    story.where("transaction", "invoke", id=f"{ORDERS}#4")["t"] = 0.0


@bad("reorder")
def the_verifier_finds_a_number_out_of_turn(story: Story) -> None:
    story.topics.findings.append(Finding("I5", ORDERS, "number 4 was accepted as 3"))


@bad("phantom")
def a_message_is_accepted_that_nobody_sent(story: Story) -> None:
    story.talk(FIRST, TARGET).heard.append(Word(brief(b"whose?")))


@bad("phantom")
def a_message_that_came_back_is_sent_again_and_nobody_asked_for_it(story: Story) -> None:
    redirected(story, brief(b"late"))
    story.drop("redirect", "invoke", conversation=SECOND)


@bad("phantom")
def a_message_arrives_on_the_dialog_to_which_it_was_not_redirected_in_the_end(story: Story) -> None:
    redirected(story, brief(b"late"))
    del story.topics.redirected[brief(b"late")]


@bad("phantom")
def a_message_arrives_with_another_body(story: Story) -> None:
    story.talk(FIRST, TARGET).heard[2] = Word(brief(b"c1/2 and more"))


@bad("phantom")
def a_message_arrives_on_another_conversation(story: Story) -> None:
    body = story.talk(SECOND, TARGET).heard.pop()
    story.talk(FIRST, TARGET).heard.append(body)


@bad("phantom")
def a_message_comes_back_to_the_side_that_sent_it(story: Story) -> None:
    story.talk(FIRST, INITIATOR).heard.append(story.talk(FIRST, TARGET).heard.pop())


@bad("phantom")
def the_verifier_finds_an_output_that_no_commit_made(story: Story) -> None:
    story.topics.findings.append(Finding("I8", SHOP, "offset 3 holds output 9, which no commit made"))


@bad("aborted read")
def an_answer_is_accepted_whose_commit_does_not_count(story: Story) -> None:
    for body in ("0 a", "0 b"):
        del story.topics.said[brief(body.encode())]


@bad("aborted read")
def a_handler_run_that_died_is_heard(story: Story) -> None:
    sends = [[FIRST, TARGET, brief(b"from the dead")]]
    story.line("transaction", "invoke", id="x", place=ORDERS, owner=OWNER, takes=[], sends=sends, ends=[])
    story.talk(FIRST, INITIATOR).heard.append(Word(brief(b"from the dead")))


@bad("torn")
def half_of_what_a_handler_run_sent_arrives(story: Story) -> None:
    del story.talk(FIRST, INITIATOR).heard[5]


@bad("torn")
def half_of_what_a_handler_run_sent_arrives_and_something_else_went_back(story: Story) -> None:
    del story.talk(FIRST, INITIATOR).heard[5]
    story.topics.returned.add(brief(b"c1/7"))


@bad("torn")
def a_commit_holds_half_of_what_a_handler_run_sent(story: Story) -> None:
    del story.topics.said[brief(b"1 b")]


@bad("false belief")
def an_owner_holds_that_a_void_commit_counts(story: Story) -> None:
    story.line("commit", "invoke", place=ORDERS, owner="cc", number=3, transactions=[])
    story.line("commit", "ok", place=ORDERS, owner="cc", number=3)


@bad("false belief")
def an_owner_holds_that_a_commit_counts_which_never_arrived(story: Story) -> None:
    story.line("commit", "invoke", place=ORDERS, owner=OWNER, number=99, transactions=[])
    story.line("commit", "ok", place=ORDERS, owner=OWNER, number=99)


@bad("false belief")
def an_owner_holds_that_its_commit_failed_and_it_counts(story: Story) -> None:
    story.where("commit", "ok", place=SHOP, number=2)["type"] = "fail"


@bad("false belief")
def an_owner_leads_whose_claim_does_not_count(story: Story) -> None:
    story.line("lead", "ok", process="zombie", place=ORDERS, owner="dd")


@bad("false belief")
def a_message_that_was_refused_arrives(story: Story) -> None:
    story.where("send", "ok", conversation=FIRST, n=2)["type"] = "fail"


@bad("false belief")
def a_message_that_was_refused_arrives_and_so_does_the_one_after_it(story: Story) -> None:
    story.line("send", "invoke", conversation=FIRST, n=3, body=brief(b"refused"))
    story.line("send", "fail", conversation=FIRST, n=3)
    story.line("send", "invoke", conversation=FIRST, n=3, body=brief(b"tried again"))
    story.line("send", "ok", conversation=FIRST, n=3)
    heard = story.talk(FIRST, TARGET).heard
    heard += [Word(brief(b"refused")), Word(brief(b"tried again"))]


@bad("after end")
def something_is_accepted_behind_the_end(story: Story) -> None:
    talk = story.talk(SECOND, INITIATOR)
    talk.heard.append(Word(brief(b"post scriptum")))


@bad("after end")
def a_side_lives_twice(story: Story) -> None:
    story.topics.talks.append(Talk(SECOND, TARGET, ORDERS))


@bad("after end")
def a_commit_sends_on_a_side_that_ended(story: Story) -> None:
    sends = [[SECOND, TARGET, brief(b"one more thing")]]
    story.line("transaction", "invoke", id="x", place=ORDERS, owner=OWNER, takes=[], sends=sends, ends=[])
    story.line("commit", "invoke", place=ORDERS, owner=OWNER, number=8, transactions=["x"])
    story.topics.partitions[ORDERS].commits[8] = OWNER


@bad("after end")
def the_verifier_finds_a_side_that_ends_again(story: Story) -> None:
    story.topics.findings.append(Finding("I9", ORDERS, "commit 9 ends it a second time"))
