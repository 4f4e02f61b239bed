"""The checker with damaged histories: it accepts the correct one and names the error in each other."""

from __future__ import annotations

import pytest

from konverse.bridge.verifier.check import KINDS
from tests.chaos import checker
from tests.chaos.checker import ANOMALIES, BY_RULE, check
from tests.chaos.history import brief
from tests.unit.chaos.bad_folds import ALL_BAD
from tests.unit.chaos.stories import (
    FIRST,
    INITIATOR,
    ORDERS,
    OWNER,
    SECOND,
    SHOP,
    TARGET,
    Story,
    moved,
    redirected,
    told,
)


def found(story: Story) -> set[str]:
    return {anomaly.name for anomaly in check(story.lines, story.topics, story.folded_again)}


@pytest.mark.parametrize("what", ALL_BAD)
def test_a_bad_history_is_rejected_by_its_name(what: str) -> None:
    anomaly, spoil = ALL_BAD[what]
    story = told()
    spoil(story)
    assert anomaly in found(story)


def test_every_anomaly_has_a_bad_history() -> None:
    assert len(ALL_BAD) >= 25
    assert {anomaly for anomaly, _ in ALL_BAD.values()} == set(ANOMALIES)


def test_every_finding_of_the_verifier_has_a_name_here() -> None:
    assert set(BY_RULE) == set(KINDS)
    assert set(BY_RULE.values()) <= set(ANOMALIES)


# --------------------------------------------------------------------------------------------------- harmless changes


def test_the_right_history_is_accepted() -> None:
    story = told()
    assert check(story.lines, story.topics, story.folded_again) == []


def test_the_checker_accepts_both_results_of_an_operation_with_unknown_outcome() -> None:
    story = told()
    for line in [line for line in story.lines if line["type"] == "ok" and line["op"] in ("send", "commit")]:
        story.lines.remove(line)
    story.line("send", "invoke", conversation=FIRST, n=3, body=brief(b"on its way when the session died"))
    story.line("commit", "invoke", place=ORDERS, owner="cc", number=8, transactions=[])
    assert found(story) == set()


def test_a_message_that_was_refused_is_not_missed() -> None:
    story = told()
    story.line("send", "invoke", conversation=FIRST, n=3, body=brief(b"refused"))
    story.line("send", "fail", conversation=FIRST, n=3)
    assert found(story) == set()


def test_a_message_discarded_by_an_ended_target_is_not_reported_as_lost() -> None:
    story = told()
    story.line("send", "invoke", conversation=SECOND, n=3, body=brief(b"discarded"))
    story.line("send", "ok", conversation=SECOND, n=3)
    story.topics.discarded.add(brief(b"discarded"))
    assert found(story) == set()


def test_messages_returned_to_their_sender_are_not_reported_as_missing() -> None:
    story = told()
    story.line("send", "invoke", conversation="c3", n=0, body=brief(b"c3"))
    story.line("send", "ok", conversation="c3", n=0)
    story.topics.returned.add(brief(b"c3"))
    assert found(story) == set()


def test_late_sends_of_handlers_and_transactions_are_not_reported_as_missing() -> None:
    story = told()
    late, discarded = brief(b"a late note"), brief(b"a late answer")
    story.where("transaction", "invoke", id=f"{SHOP}#6")["sends"].append([FIRST, INITIATOR, late])
    story.where("transaction", "invoke", id=f"{ORDERS}#6")["sends"].append([SECOND, TARGET, discarded])
    story.topics.said.update([late, discarded])
    story.topics.returned |= {late, brief(b"too late for its dialog")}
    story.topics.discarded.add(discarded)
    story.line("together", "invoke", id="t", sends=[[FIRST, brief(b"c1/0")], ["c3", brief(b"too late for its dialog")]])
    assert found(story) == set()


def test_a_handler_run_whose_commit_does_not_count_changes_nothing() -> None:
    story = told()
    takes = [[FIRST, TARGET, 0, brief(b"c1/0")]]
    sends = [[FIRST, TARGET, brief(b"of a zombie")], [FIRST, TARGET, brief(b"of a zombie too")]]
    story.line("transaction", "invoke", id="x", place=ORDERS, owner="cc", takes=takes, sends=sends, ends=[])
    story.line("commit", "invoke", place=ORDERS, owner="cc", number=1, transactions=["x"])
    story.line("commit", "fail", place=ORDERS, owner="cc", number=1)
    assert found(story) == set()


def test_a_replaced_owner_may_hold_an_outdated_state() -> None:
    story = told()
    story.topics.partitions[ORDERS].claims.append("cc")
    story.line("lead", "ok", process="the next owner", place=ORDERS, owner="cc")
    story.line("lead", "ok", process="stopped before it could tell", place=ORDERS, owner=OWNER)
    story.line("state", "ok", process="zombie", place=ORDERS, owner=OWNER, sides=[])
    assert found(story) == set()


def test_a_conversation_that_moved_is_received_in_order_wherever_it_lived() -> None:
    story = told()
    moved(story)
    assert found(story) == set()


def test_a_follower_with_a_final_state_equal_to_the_logs_is_accepted() -> None:
    story = told()
    sides = story.where("state", "ok", place=ORDERS)["sides"]
    story.line("followed", "ok", process="follower", place=ORDERS, owner="ee", sides=sides)
    assert found(story) == set()


def test_a_message_that_came_back_and_was_redirected_has_arrived() -> None:
    story = told()
    redirected(story, brief(b"late"))
    assert found(story) == set()


def test_operations_that_say_nothing_here_are_passed_over() -> None:
    story = told()
    story.line("clock", "ok", clock="uptime", error_s=86_400.0, reader="konverse.bridge.runtime.clock")
    story.line("move", "ok", conversation=FIRST, to=1)
    story.line("flush", "ok")
    story.line("nemesis", "ok", name="broker killed", effect="pid 7 is gone")
    assert found(story) == set()


def test_all_names_are_explained() -> None:
    names = {value for name, value in vars(checker).items() if name.isupper() and isinstance(value, str)}
    assert names - {"info"} == set(ANOMALIES)
