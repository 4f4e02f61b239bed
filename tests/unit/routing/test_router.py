"""A router's step: incoming dialogs are mapped to outgoing dialogs by a common group."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from konverse.routing.decisions import Unclassifiable
from konverse.routing.documents import read_redirect
from konverse.routing.routed import Routed
from konverse.routing.router import Router
from konverse.routing.step import REDIRECT, REDIRECT_TO
from konverse.schemas.catalog.table_entries import Target
from konverse.schemas.errors import InvalidRoute, InvalidSettings, InvalidState, NotSupportedYet, ServiceNotFound
from konverse.schemas.identifiers import Role, conversation_in, pool_group, pool_namespace
from konverse.schemas.limits import BODY_BYTES_MAX, TRANSACTION_BYTES_MAX
from konverse.schemas.origins import ErrorOrigin, origin_of
from konverse.schemas.system_messages import END_DIALOG
from konverse.schemas.wire.journal import EndOperation
from konverse.schemas.wire.operations import SetTimer
from konverse.schemas.wire.records import BounceReason
from tests.kit.builders import begin_block
from tests.kit.office import Office, bodies, error

ONE = Routed(forwarded=1, targets={"depot": 1})


def test_the_first_message_is_classified_and_all_follow_it() -> None:
    office = Office()
    conversation = office.pair.begin(messages=3)
    assert office.route() == Routed(forwarded=1, followed=2, targets={"depot": 3})
    office.pair.send(conversation, b"3", sequence=3)
    assert office.route() == Routed(followed=1, targets={"depot": 1})
    assert [message.body for message in office.asked] == [b"0"]
    outer = office.outer()
    assert bodies(outer) == [b"0", b"1", b"2", b"3"]
    inner = office.inner(conversation)
    assert (outer.terms.far_service, outer.terms.service, outer.terms.contract) == ("store", "depot", "orders")
    assert office.outbound().group_id == inner.group_id, "they are received together"


def test_the_outgoing_dialog_has_the_key_of_the_initiator() -> None:
    office = Office()
    conversation = office.pair.begin(key=b"customer 7")
    assert office.inner(conversation).key == b"customer 7"
    office.route()
    assert office.outer().key == b"customer 7"


def test_replies_come_back_on_the_first_dialog() -> None:
    office = Office()
    conversation = office.pair.begin()
    office.route()
    office.reply(b"a", b"b")
    assert office.route() == Routed(replied=2)
    assert bodies(office.home(conversation)) == [b"a", b"b"]
    assert len(office.asked) == 1


def test_each_of_several_dialogs_has_its_own_way() -> None:
    office = Office()
    conversations = [office.pair.begin(name) for name in ("one", "two")]
    for _ in conversations:
        assert office.route() == ONE
    for outer in list(office.depot.state.sides[Role.TARGET].values()):
        office.depot.send(outer, b"re " + outer.conversation)
    office.depot.deliver(office.side)
    begun = {side.group_id: side.conversation for side in office.side.state.sides[Role.INITIATOR].values()}
    while office.waiting:
        office.route()
    for conversation in conversations:
        expected = b"re " + begun[office.inner(conversation).group_id]
        assert bodies(office.home(conversation)) == [expected]


def test_the_end_of_the_initiator_ends_the_outgoing_dialog() -> None:
    office = Office()
    conversation = office.pair.begin()
    office.route()
    office.pair.end_call(conversation)
    office.pair.home.deliver(office.side)
    assert office.route() == Routed(ended=1)
    assert [entry[1] for entry in office.outer().queue] == ["order", END_DIALOG]


def test_the_end_of_the_target_ends_the_first_dialog() -> None:
    office = Office()
    conversation = office.pair.begin()
    office.route()
    office.depot.send(office.outer(), b"last")
    office.depot.end(office.outer())
    office.depot.deliver(office.side)
    assert office.route() == Routed(replied=1, ended=1)
    assert [entry[1] for entry in office.home(conversation).queue] == ["reply", END_DIALOG]
    assert office.side.state.sides[Role.INITIATOR] == {}


def test_an_error_of_the_target_is_passed_on_with_its_origin() -> None:
    office = Office()
    conversation = office.pair.begin()
    office.route()
    office.depot.end(office.outer(), 404, "no such thing: <none>")
    office.depot.deliver(office.side)
    assert office.route() == Routed(ended=1)
    code, description = error(office.home(conversation))
    assert code == 10001
    assert description == 'Error 404 from service "depot": no such thing: <none>'
    assert origin_of(description) == ErrorOrigin("depot", 404, "no such thing: <none>")


def test_an_error_of_the_initiator_is_forwarded_to_the_target() -> None:
    office = Office()
    conversation = office.pair.begin()
    office.route()
    office.pair.end_call(conversation, (7, "never mind"))
    office.pair.home.deliver(office.side)
    assert office.route() == Routed(ended=1)
    assert error(office.outer()) == (10001, 'Error 7 from service "shop": never mind')


def test_a_dialog_with_sends_and_an_immediate_end_is_forwarded_completely() -> None:
    office = Office()
    conversation = office.pair.begin(messages=2)
    office.pair.end_call(conversation)
    office.pair.home.deliver(office.side)
    assert office.route() == Routed(forwarded=1, followed=1, ended=1, targets={"depot": 2})
    assert [entry[1] for entry in office.outer().queue] == ["order", "order", END_DIALOG]


def test_both_may_end_at_once() -> None:
    office = Office()
    conversation = office.pair.begin()
    office.route()
    office.depot.end(office.outer())
    office.depot.deliver(office.side)
    office.pair.end_call(conversation)
    office.pair.home.deliver(office.side)
    assert office.route() == Routed(ended=1)
    assert not office.waiting
    for side in office.side.state.sides:
        assert all(endpoint.state.code == "DO" for endpoint in side.values()), "nothing is left but what awaits its END"


def test_a_message_for_a_target_that_has_ended_is_counted() -> None:
    office = Office()
    conversation = office.pair.begin()
    office.route()
    office.depot.end(office.outer())
    office.pair.send(conversation, b"1", sequence=1)
    office.depot.deliver(office.side)
    assert office.route() == Routed(dropped=1, ended=1)


@pytest.mark.parametrize(("reason", "says"), [("", "message of type 'order'"), ("no region", "no region")])
def test_an_unclassifiable_message_ends_its_conversation_with_error_1(reason: str, says: str) -> None:
    office = Office(decision=Unclassifiable(reason))
    conversation = office.pair.begin(messages=2)
    assert office.route() == Routed(rejected=1, dropped=1)
    code, description = error(office.home(conversation))
    assert code == 1
    assert says in description


def test_a_redirection_says_where_to_go_and_ends() -> None:
    office = Office(Router(REDIRECT), Target("//sales/<North>", "an instance"))
    conversation = office.pair.begin()
    assert office.route() == Routed(redirected=1, targets={"//sales/<North>": 1})
    home = office.home(conversation)
    assert [entry[1] for entry in home.queue] == [REDIRECT_TO, END_DIALOG]
    assert read_redirect(bodies(home)[0] or b"") == Target("//sales/<North>", "an instance")


POOLED = conversation_in(pool_group(pool_namespace("sales", "a pool"), "a key"), bytes(16))


def from_a_pool(office: Office, messages: int) -> None:
    """A pool sends; nothing of it was received yet."""
    pair, block = office.pair, begin_block(group=POOLED)
    pair.home.take(pair.client.begin(POOLED, block))
    pair.target.take(pair.client.first(pair.target.address, POOLED, block), b"0")
    for number in range(1, messages):
        pair.send(POOLED, b"%d" % number, sequence=number)


def test_a_pool_that_is_redirected_gets_all_that_it_has_sent_back() -> None:
    office = Office(Router(REDIRECT), Target("//sales/North"))
    from_a_pool(office, 3)
    assert office.route() == Routed(redirected=1, targets={"//sales/North": 1})
    note, *messages = office.pair.home.state.mailbox.entries.values()
    assert (note.message_type, note.bounce.reason) == (REDIRECT_TO, BounceReason.REDIRECTED)
    assert read_redirect(note.body or b"") == Target("//sales/North")
    assert [one.body for one in messages] == [b"0", b"1", b"2"]
    assert [entry[1] for entry in office.home(POOLED).queue] == [END_DIALOG], "nothing else waits for its reader"
    assert not office.waiting


def test_a_timer_before_the_first_message_of_a_redirected_pool_does_not_prevent_its_redirection() -> None:
    office = Office(Router(REDIRECT))
    from_a_pool(office, 2)
    office.side.commit(rare=[SetTimer(office.inner(POOLED).index, 1)])
    office.side.state.now_ms += 1
    office.side.commit()
    office.route()
    _, *messages = office.pair.home.state.mailbox.entries.values()
    assert [one.body for one in messages] == [b"0", b"1"]


def test_a_router_that_is_rolled_back_has_given_nothing_back() -> None:
    def resolve(target: Target, _contract: str) -> Target:
        if target.service == "nowhere":
            raise ServiceNotFound("there is none")
        return target

    office = Office(Router(REDIRECT, resolve=resolve), Target("nowhere"))
    from_a_pool(office, 2)
    with pytest.raises(ServiceNotFound):
        office.route()
    assert not office.pair.home.state.mailbox.entries
    office.decision = Target("//sales/North")
    assert office.route().redirected == 1
    assert len(office.pair.home.state.mailbox) == 3


def test_an_ended_conversation_is_not_redirected() -> None:
    office = Office(Router(REDIRECT))
    conversation = office.pair.begin()
    office.pair.end_call(conversation)
    office.pair.home.deliver(office.side)
    assert office.route() == Routed(dropped=1)
    assert not office.waiting


def test_forwarded_dialogs_are_still_forwarded_after_the_router_switches_to_redirecting() -> None:
    office = Office()
    conversation = office.pair.begin()
    office.route()
    office.router = Router(REDIRECT)
    office.pair.send(conversation, b"1", sequence=1)
    assert office.route() == Routed(followed=1, targets={"depot": 1})


@pytest.mark.parametrize("mode", ["forward", "redirect"])
def test_a_router_that_decides_on_itself_is_refused(mode: str) -> None:
    office = Office(Router(mode), Target("store"))
    conversation = office.pair.begin()
    with pytest.raises(InvalidRoute, match="is the router that received it") as refused:
        office.route()
    office.decision = Target("depot")
    assert str(office.inner(conversation).id) in str(refused.value)
    office.router = Router()
    assert office.route() == ONE, "nothing was lost"


def test_a_router_resolves_its_decision_in_the_catalog() -> None:
    def resolve(target: Target, _contract: str) -> Target:
        if target.service != "Depot":
            raise ServiceNotFound("there is none")
        return Target("depot")

    office = Office(Router(resolve=resolve), Target("nowhere"))
    office.pair.begin()
    with pytest.raises(ServiceNotFound):
        office.route()
    office.decision = Target("Depot")
    assert office.route() == ONE


def test_forwarding_to_another_database_is_not_there_yet() -> None:
    office = Office(decision=Target("depot", "0b7e1a52-6b8e-4f0e-8f5e-2f7c9f4e3d10"))
    office.pair.begin()
    with pytest.raises(NotSupportedYet, match="Redirect its initiator"):
        office.route()


def test_a_router_has_one_of_two_modes() -> None:
    with pytest.raises(InvalidSettings, match="'forward' or 'redirect', not 'sideways'"):
        Router("sideways")


def test_undecided_returns_the_next_message_without_receiving_it() -> None:
    office = Office()
    office.pair.begin(messages=2)
    transaction = office.take()
    message: Any = office.router.undecided(transaction)
    assert message.body == b"0"
    assert transaction.received == {}
    assert office.router.step(transaction, office.decide).messages == 2
    office.commit(transaction)
    office.pair.send(office.inner(message.dialog.conversation).conversation, b"2", sequence=2)
    assert office.router.undecided(office.take()) is None, "it follows"


def test_an_end_without_a_message_to_route_does_not_call_the_classifier() -> None:
    office = Office()
    conversation = office.pair.begin(messages=2)
    transaction = office.take()
    list(transaction)
    office.commit(transaction)
    office.pair.end_call(conversation)
    office.pair.home.deliver(office.side)
    transaction = office.take()
    assert office.router.undecided(transaction) is None
    assert office.router.step(transaction, office.decide) == Routed()
    assert office.asked == []


def test_a_dialog_that_no_router_has_begun_is_refused() -> None:
    office = Office()
    transaction = office.order()
    dialog = transaction.begin("store", "depot", "contract")
    transaction.send(dialog, "question", b"?")
    office.commit(transaction)
    office.answer(dialog)
    with pytest.raises(InvalidState, match="was not begun by a router"):
        office.route()
    assert office.waiting, "whoever has begun it can still receive it"


def test_a_group_of_several_pairs_is_refused() -> None:
    office = Office()
    one, two = office.pair.begin("one"), office.pair.begin("two")
    for conversation in (one, two):
        transaction = office.take()
        dialog = transaction.dialog
        assert dialog.conversation == conversation
        list(transaction)
        if conversation == two:
            transaction.move(dialog, UUID(bytes=office.inner(one).group_id))
        office.commit(transaction)
    office.pair.send(two, b"1", sequence=1)
    with pytest.raises(InvalidState, match="are in one group") as refused:
        office.route()
    assert str(office.inner(one).id) in str(refused.value)


def test_a_reply_after_the_end_of_the_first_dialog_is_dropped_and_ends_its_own_dialog_with_an_error() -> None:
    office = Office()
    conversation = office.pair.begin()
    office.route()
    office.side.commit(ends=[EndOperation(office.inner(conversation).index, 0, "")])
    office.side.deliver(office.pair.home)
    office.reply(b"too late")
    assert office.route() == Routed(dropped=1)
    code, description = error(office.outer())
    assert (code, "is over" in description) == (10001, True)


def test_more_than_fits_into_a_transaction_is_passed_on_by_several() -> None:
    office = Office()
    conversation = office.pair.begin(messages=0)
    count = TRANSACTION_BYTES_MAX // BODY_BYTES_MAX + 2
    large = [bytes([number]) * BODY_BYTES_MAX for number in range(count)]
    first = office.pair.client.first(office.pair.target.address, conversation, begin_block(group=conversation))
    office.pair.target.take(first, large[0])
    for number in range(1, count):
        office.pair.send(conversation, large[number], sequence=number)
    assert office.route() == Routed(forwarded=1, followed=3, targets={"depot": 4})
    assert office.route() == Routed(followed=2, targets={"depot": 2})
    assert bodies(office.outer()) == large


def test_counts_are_added() -> None:
    one = Routed(forwarded=1, followed=2, dropped=1, targets={"a": 3})
    two = Routed(replied=4, redirected=1, rejected=2, ended=5, failed=6, targets={"a": 1, "b": 2})
    both = one.plus(two)
    assert both == Routed(1, 2, 4, 1, 2, 5, 1, 6, {"a": 4, "b": 2})
    assert both.messages == 11


def test_errors_wait_behind_nothing() -> None:
    office = Office()
    conversation = office.pair.begin()
    office.route()
    office.reply(b"first")
    office.depot.end(office.outer(), 5, "then")
    office.depot.deliver(office.side)
    assert office.route() == Routed(ended=1, dropped=1), "an Error overtakes, and takes back what is not sent yet"
    assert error(office.home(conversation))[0] == 10001
