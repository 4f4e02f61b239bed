"""The same scenarios for two drivers: the simulator's over its Kafka, and the bridge's over a real one.

The simulator's proof holds for the product only as far as both drivers act alike on the same outcomes.
"""

from __future__ import annotations

import pytest

from konverse.schemas.errors import SessionTakenOver
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire.records import Kind

from .stand import HOME, ORDERS, OTHERS, Stand, Written


def bodies(stand: Stand, queue: int = ORDERS) -> list[bytes]:
    """Bodies of the received messages."""
    received = stand.receive(queue)
    return [body for _, body in received]


def messages(first: int, count: int, writer: int = 0) -> list[Written]:
    """Messages under one id, in order of their counters."""
    return [Written(writer, Kind.MESSAGE, number) for number in range(first, first + count)]


def facts(written: list[Written]) -> list[Written]:
    return [Written(one.id, one.kind, one.counter) for one in written]


# ------------------------------------------------------------------------------------------------------------ answers


def test_a_first_message_leaves_when_its_home_has_the_begin(stand: Stand) -> None:
    dialog = stand.begin()
    stand.send(dialog, b"0")
    stand.send(dialog, b"1")
    stand.flush()
    assert facts(stand.written(HOME)) == [Written(0, Kind.BEGIN, 0)]
    assert facts(stand.written()) == messages(0, 2)
    assert bodies(stand) == [b"0", b"1"]
    assert bodies(stand) == []


def test_the_answer_for_one_record_says_nothing_of_those_before_it(stand: Stand) -> None:
    """Kafka has all records, and the producer failed before it was empty. All go again, with the same counters."""
    dialog = stand.begin()
    stand.flush()
    with stand.failing_producer():
        for number in range(3):
            stand.send(dialog, b"%d" % number)
    stand.flush()
    assert facts(stand.written()) == [*messages(0, 3), *messages(0, 3)]
    assert bodies(stand) == [b"0", b"1", b"2"]


def test_an_end_leaves_when_everything_before_it_counts(stand: Stand) -> None:
    dialog = stand.begin()
    stand.flush()
    stand.send(dialog, b"0")
    stand.end(dialog)
    stand.flush()
    assert [one.kind for one in stand.written(HOME)] == [Kind.BEGIN, Kind.END_CALL]
    assert stand.receive(HOME) == [], "its owner tells the target"
    assert [kind for kind, _ in stand.receive()] == ["t", END_DIALOG]


# ------------------------------------------------------------------------------------------------ renewal, take-over


def test_a_new_writer_id_is_used_at_once_if_all_records_are_acknowledged(stand: Stand) -> None:
    dialog = stand.begin()
    stand.send(dialog, b"0")
    stand.flush()
    stand.grow_old()
    stand.let_go()
    stand.send(dialog, b"1")
    stand.flush()
    assert len(stand.session.ids) == 2
    assert facts(stand.written()) == [*messages(0, 1), Written(1, Kind.CLOSE_WRITER, 0), *messages(1, 1, writer=1)]
    assert bodies(stand) == [b"0", b"1"]


def test_records_in_flight_delay_sends_under_a_new_id_until_the_destination_has_answered(stand: Stand) -> None:
    """First the destination has no owner. Then it tells where the former id was closed, and the rest follows."""
    dialog = stand.begin()
    stand.flush()
    stand.send(dialog, b"0")
    stand.doubt()
    stand.send(dialog, b"1")
    stand.let_go()
    assert [one for one in facts(stand.written()) if one.id] == [Written(1, Kind.CLOSE_WRITER, 0)]
    stand.flush()
    behind = [one for one in facts(stand.written()) if one.id][1:]
    assert behind == messages(1, len(behind), writer=1)
    assert bodies(stand) == [b"0", b"1"]
    assert stand.session.takeover.wanted() == []


def test_an_id_that_is_given_up_while_its_answer_is_awaited_asks_again(stand: Stand) -> None:
    dialog = stand.begin()
    stand.flush()
    stand.send(dialog, b"0")
    stand.doubt()
    stand.let_go()
    stand.doubt()
    stand.send(dialog, b"1")
    stand.flush()
    asked = [one for one in facts(stand.written()) if one.kind is Kind.CLOSE_WRITER]
    assert asked[:2] == [Written(1, Kind.CLOSE_WRITER, 0), Written(2, Kind.CLOSE_WRITER, 0)]
    assert bodies(stand) == [b"0", b"1"]
    assert len(stand.session.ids) == 3


def test_a_session_that_a_stranger_has_closed_ends_and_says_so(stand: Stand) -> None:
    """Messages reported to the stranger as not received are never sent again."""
    dialog = stand.begin()
    stand.send(dialog, b"0")
    stand.flush()
    stand.close_from_outside()
    stand.send(dialog, b"1")
    stand.doubt()
    with pytest.raises(SessionTakenOver):
        stand.flush()
    assert bodies(stand) == [b"0"]
    assert isinstance(stand.session.over, SessionTakenOver)


def test_a_query_by_another_process_closes_the_session_and_reports_its_missing_messages(stand: Stand) -> None:
    """Messages that wait for a BEGIN are never received; those in Kafka are, once an owner takes them."""
    known = stand.begin()
    stand.flush()
    stand.send(known, b"0")
    stand.refuse(HOME, refuses=True)
    waiting = stand.begin()
    stand.send(waiting, b"never")
    stand.let_go()
    assert stand.asked_from_outside() == {1: 0}
    stand.refuse(HOME, refuses=False)
    stand.doubt()
    with pytest.raises(SessionTakenOver):
        stand.flush()
    assert bodies(stand) == [b"0"]


# ------------------------------------------------------------------------------------------- errors that never heal


def test_a_destination_that_refuses_records_blocks_no_other_and_receives_all_once_it_accepts_again(
    stand: Stand,
) -> None:
    refused, other = stand.begin(ORDERS), stand.begin(OTHERS)
    stand.flush()
    stand.refuse(ORDERS, refuses=True)
    for number in range(3):
        stand.send(refused, b"%d" % number)
        stand.send(other, b"%d" % number)
    stand.let_go()
    assert stand.session.refused
    assert not stand.flushed(), "what is refused is reported as nothing else"
    assert facts(stand.written(ORDERS)) == []
    assert bodies(stand, OTHERS) == [b"0", b"1", b"2"]
    stand.refuse(ORDERS, refuses=False)
    stand.flush()
    assert facts(stand.written(ORDERS)) == messages(0, 3)
    assert bodies(stand, ORDERS) == [b"0", b"1", b"2"]


# ------------------------------------------------------------------------------------------------------------ silence


def test_in_a_silent_kafka_nothing_is_a_success_before_it_is_and_then_all_of_it_once(own_stand: Stand) -> None:
    """Sends, a new dialog, and a commit: each outcome is unknown, and each succeeds later."""
    stand = own_stand
    dialog = stand.begin()
    stand.flush()
    with stand.silence():
        for number in range(3):
            stand.send(dialog, b"%d" % number)
        assert not stand.flushed()
        assert [one.counters for one in stand.session.unknown()] == [(0, 1, 2)]
        assert not stand.flushed(), "asking again makes nothing known"
    assert stand.flushed(), "what Kafka was asked, it has done"
    assert stand.session.unknown() == []
    assert facts(stand.written()) == messages(0, 3), "and nothing twice"
    received, *told = stand.commit_in_silence()
    assert received
    assert told == [False, True], "it counts when Kafka says so, and not before"
    assert stand.claimed_again() == 0
    assert [*received, *bodies(stand)] == [b"0", b"1", b"2"]
    with stand.silence():
        stand.send(dialog, b"3")
        stand.end(dialog)
        assert not stand.flushed()
    stand.flush()
    assert stand.receive(HOME) == [], "its owner tells the target"
    assert [kind for kind, _ in stand.receive()] == ["t", END_DIALOG]


# ------------------------------------------------------------------------------------------------------------- owners


def test_a_commit_whose_outcome_is_unknown_is_judged_by_the_log(stand: Stand) -> None:
    """The answer is lost and the COMMIT is there: the owner claims again and receives nothing twice."""
    dialog = stand.begin()
    stand.send(dialog, b"0")
    stand.flush()
    assert stand.claimed_again() == 0
    stand.lose_answer()
    assert bodies(stand) == [b"0"]
    assert stand.claimed_again() == 1
    stand.send(dialog, b"1")
    stand.flush()
    assert bodies(stand) == [b"1"]


def test_a_commit_of_an_owner_that_was_replaced_does_not_count(stand: Stand) -> None:
    dialog = stand.begin()
    stand.send(dialog, b"0")
    stand.flush()
    assert stand.overtaken() == ([b"0"], False)
    assert bodies(stand) == [b"0"], "the next owner receives it"


def test_answers_whose_producer_failed_go_again_with_the_same_counters_and_count_once(stand: Stand) -> None:
    dialog = stand.begin()
    stand.send(dialog, b"0")
    stand.send(dialog, b"1")
    stand.flush()
    stand.answer(b"re", fails=True)
    assert stand.answers() == [(0, b"re"), (1, b"re"), (0, b"re"), (1, b"re")]
    assert bodies(stand, HOME) == [b"re", b"re"]
    assert bodies(stand, HOME) == []


# --------------------------------------------------------------------------------------------------------- gaps, LOST


def test_offsets_that_hold_nothing_are_no_loss(stand: Stand) -> None:
    """Transaction markers and aborted records: the log ends behind them, and no reader gets them."""
    dialog = stand.begin()
    stand.flush()
    for number in range(3):
        start, end = stand.bounds()
        with stand.strangers_transaction():
            assert stand.bounds() == (start, end)
        assert stand.bounds() == (start, end + 2)
        stand.send(dialog, b"%d" % number)
        stand.flush()
    assert stand.receive() == [("t", b"0"), ("t", b"1"), ("t", b"2")]
    assert stand.receive(HOME) == []


def test_behind_an_open_transaction_of_a_stranger_nothing_is_received_before_it_ends(stand: Stand) -> None:
    """Records that Kafka acknowledged behind it count anyway."""
    dialog = stand.begin()
    stand.send(dialog, b"0")
    stand.flush()
    with stand.strangers_transaction():
        stand.send(dialog, b"1")
        stand.flush()
        assert bodies(stand) == [b"0"]
    assert bodies(stand) == [b"1"]


def test_deleting_records_moves_the_start_of_a_log_but_not_its_end(stand: Stand) -> None:
    dialog = stand.begin()
    stand.send(dialog, b"lost")
    stand.let_go()
    start, end = stand.bounds()
    assert (start, end) == (0, 1)
    stand.delete_unread()
    assert stand.bounds() == (end, end)


def test_behind_a_loss_the_living_session_is_heard_on_a_new_dialog(stand: Stand) -> None:
    old = stand.begin()
    stand.flush()
    assert bodies(stand) == []
    stand.send(old, b"lost")
    stand.let_go()
    stand.delete_unread()
    new = stand.begin()
    stand.send(new, b"new")
    stand.flush()
    assert bodies(stand) == [b"new"]
