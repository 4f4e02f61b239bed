"""Damages to a correct story in which processes and logs disagree."""

from __future__ import annotations

from typing import Final

from konverse.bridge.verifier.check import Finding
from tests.chaos.history import brief
from tests.unit.chaos.bad_stories import BAD, Spoil, bad
from tests.unit.chaos.stories import FIRST, INITIATOR, ORDERS, SECOND, SHOP, TARGET, Story

ALL_BAD: Final[dict[str, tuple[str, Spoil]]] = BAD
"""The damages of `bad_stories` and these."""


@bad("divergence")
def an_owner_counts_otherwise_than_the_logs(story: Story) -> None:
    story.where("state", "ok", place=ORDERS)["sides"][0][4] += 1


@bad("divergence")
def an_owner_still_has_a_side_that_is_gone(story: Story) -> None:
    story.where("state", "ok", place=ORDERS)["sides"].append([SECOND, TARGET, "CO", 0, 3, 3, 0, False])


@bad("divergence")
def an_owner_lacks_a_side(story: Story) -> None:
    story.where("state", "ok", place=SHOP)["sides"].pop()


@bad("divergence")
def a_follower_counts_otherwise_than_the_logs(story: Story) -> None:
    sides = [[*side] for side in story.where("state", "ok", place=ORDERS)["sides"]]
    sides[0][4] += 1
    story.line("followed", "ok", process="follower", place=ORDERS, owner="ee", sides=sides)


@bad("divergence")
def the_logs_folded_once_more_say_otherwise(story: Story) -> None:
    story.folded_again[SHOP][FIRST, INITIATOR] = ("DI", 1, 6, 6, 0, False)


@bad("divergence")
def the_view_is_wrong(story: Story) -> None:
    story.topics.findings.append(Finding("view", ORDERS, "at journal 9 it shows ..."))


@bad("unseen")
def a_message_waits_for_ever(story: Story) -> None:
    story.talk(FIRST, TARGET).consumed.pop()


@bad("unseen")
def records_are_never_ingested(story: Story) -> None:
    story.topics.partitions[ORDERS].not_ingested = 2


@bad("unseen")
def an_output_stays_in_the_outbox(story: Story) -> None:
    story.topics.partitions[SHOP].not_delivered = 1


@bad("broken")
def a_process_stops_because_its_partition_was_halted(story: Story) -> None:
    story.line("stopped", "info", process="owner", reason="PartitionHalted: the journal begins at 7")


@bad("broken")
def the_journal_contradicts_itself(story: Story) -> None:
    story.topics.findings.append(Finding("I17", ORDERS, "commit 3 does not follow the one before it"))


@bad("torn")
def a_part_of_a_clients_transaction_is_missing(story: Story) -> None:
    there = brief(b"c1/0")
    story.line("together", "invoke", id="t", sends=[[FIRST, there], [FIRST, brief(b"never arrived")]])


@bad("torn")
def a_part_of_a_clients_transaction_is_missing_and_something_else_went_back(story: Story) -> None:
    a_part_of_a_clients_transaction_is_missing(story)
    story.topics.returned.add(brief(b"c1/7"))


@bad("torn")
def a_part_of_a_clients_transaction_is_missing_on_a_side_that_ended(story: Story) -> None:
    story.line("together", "invoke", id="t", sends=[[FIRST, brief(b"c1/0")], [SECOND, brief(b"never arrived")]])
