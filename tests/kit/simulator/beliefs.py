"""Checks of an owner's beliefs against the logs, at the moment when the owner states them (I2, I3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import konverse.dialog.owner.emitter
import konverse.dialog.owner.owner
import konverse.dialog.rules.batches
from konverse.dialog.owner.emitter import Emit
from konverse.dialog.owner.events import Stopped
from konverse.dialog.owner.owner import Owner
from konverse.dialog.owner.view import Show, field_of, pack
from tests.kit.digests import digest

from .places import Place
from .regrouping import come_again

if TYPE_CHECKING:
    from .world import World


@dataclass(slots=True)
class Flight:
    """A commit under way."""

    number: int
    judged: bool = False
    """The record got another offset than expected, and the journal was read."""


def leads(world: World, place: Place, owner: Owner) -> None:
    """Check an owner that reports itself leading."""
    if owner.claim_id not in place.judge.claims:
        place.fail(f"I2: {place.name}: an owner leads without a CLAIM that counts")
    outbox = any(stream.waiting for stream in owner.fold.state.streams.values())
    world.sometimes.happened("outbox recovered", outbox)
    world.sometimes.happened("recovered from a snapshot", bool(owner.snapshots._durable))
    compare(world, place, owner)


def committed(world: World, place: Place, owner: Owner, flight: Flight) -> None:
    """Check a commit that the owner reports as counting."""
    counted = place.judge.commits.get(flight.number)
    if counted is None or counted[1] != owner.claim_id:
        place.fail(f"I2: {place.name}: an owner reports commit {flight.number}, which does not count")
        return
    world.sometimes.happened("offset judged, valid", flight.judged)
    if world.choices.chance(250):
        compare(world, place, owner)


def gave_up(place: Place, owner: Owner, flight: Flight | None, stopped: Stopped) -> None:
    """Check an owner that did not find its acknowledged commit in the journal: the commit must not be there."""
    if flight is None or not stopped.reason.endswith("the offset that Kafka acknowledged"):
        return
    counted = place.judge.commits.get(flight.number)
    if counted is not None and counted[1] == owner.claim_id:
        place.fail(f"I2: {place.name}: an owner has not found its commit {flight.number}, which counts")


def fenced(world: World, place: Place, owner: Owner, flight: Flight | None) -> None:
    """Check an owner that steps down: its commit under way must not count."""
    if flight is None:
        world.sometimes.happened("claim lost")
        return
    world.sometimes.happened("offset judged, invalid")
    counted = place.judge.commits.get(flight.number)
    if counted is not None and counted[1] == owner.claim_id:
        place.fail(f"I2: {place.name}: an owner says that commit {flight.number} does not count; it does")


def shows(world: World, place: Place, show: Show) -> None:
    """Check that the view shows only verified states: each row is the fold of the logs at that offset."""
    if show.journal_offset >= place.journal.end:
        place.fail(f"view: {place.name}: journal offset {show.journal_offset} is shown before it exists")
        return
    if not world.choices.chance(300) or not place.follow(show.journal_offset):
        return
    live = {field_of(endpoint): pack(endpoint) for endpoint in place.shadow.state.live()}
    for field, value in show.rows:
        if live.get(field) != value:
            place.fail(f"view: {place.name}: a row is shown as {value!r} and is {live.get(field)!r}")
    if show.open != len(live):
        place.fail(f"view: {place.name}: {show.open} endpoints are shown and {len(live)} live")
    for field in show.gone:
        if field in live:
            place.fail(f"view: {place.name}: a row is deleted and its endpoint lives")
    world.sometimes.happened("view compared")


def emits(place: Place, effect: Emit) -> None:
    """Check that an emission stays within the window (I15)."""
    most = vars(konverse.dialog.owner.emitter)["EMITTER_WINDOW_RECORDS_MAX"]  # as this run has it
    if effect.size > most:
        place.fail(f"I15: {place.name}: {effect.size} outputs are emitted at once, {most} may be")


def ingests(place: Place, unread: int, unread_bytes: int, count: int) -> None:
    """Check that nothing is ingested while the maximum of messages or bytes waits (I15)."""
    most = vars(konverse.dialog.owner.owner)["LOOK_AHEAD_RECORDS_MAX"]  # as this run has it
    if count and unread >= most:  # `unread` leaves out suspended conversations
        place.fail(f"I15: {place.name}: {count} records are ingested although {unread} wait; {most} may")
    most = vars(konverse.dialog.owner.owner)["LOOK_AHEAD_BYTES_MAX"]
    if count and unread_bytes >= most:
        place.fail(f"I15: {place.name}: more is ingested although {unread_bytes} bytes wait; {most} may")


def keeps(place: Place, owner: Owner) -> None:
    """Check at each commit that the rows which wait for decisions are within their bound (I15)."""
    most, rows = vars(konverse.dialog.rules.batches)["PENDING_RECORDS_MAX"], owner.fold.state.pending.rows
    if rows > most:
        place.fail(f"I15: {place.name}: {rows} rows of batches wait; {most} may")


def attends(place: Place, owner: Owner) -> None:
    """Check that every free group with messages is among the ready ones (L1, noticed early)."""
    state = owner.fold.state
    if state.ingest_to > owner._journaled_to and owner.waiting_since is None:
        place.fail(f"L1: {place.name}: nobody thinks of what was ingested to {state.ingest_to}")
    looked_at = [*state.ready, *owner.staging.ready, *owner.trial._window, *come_again(owner)]
    ready = [endpoint for endpoint in looked_at if endpoint.waits]
    for endpoint in state.live():
        if endpoint.waits and not endpoint.held:
            group = endpoint.group
            if not any(one is endpoint or (group is not None and one.group is group) for one in ready):
                place.fail(f"L1: {place.name}: nobody looks at the messages of {endpoint!r}")


def compare(world: World, place: Place, owner: Owner) -> None:
    """Check that the owner's state, when nothing is staged on it, is the fold of the verified logs."""
    state, head = owner.fold.state, owner.fold.head
    if state.ingest_to != owner._journaled_to or owner.committing or not place.follow(head.offset):
        return
    shadow = place.shadow
    if (head.epoch, head.owner, head.number, head.hash, head.claim_offset, head.clean) != (
        shadow.head.epoch, shadow.head.owner, shadow.head.number, shadow.head.hash, shadow.head.claim_offset,
        shadow.head.clean,
    ):  # fmt: skip
        place.fail(f"I3: {place.name}: the owner judges the journal otherwise than a fold of it")
    if head.now_ms != shadow.head.now_ms:
        place.fail(f"I3: {place.name}: the partition's time is {head.now_ms}, not {shadow.head.now_ms}")
    if digest(state) != digest(shadow.state) or state.moves.leaving != shadow.state.moves.leaving:
        place.fail(f"I3: {place.name}: the owner's state is not the fold of the logs")
    world.sometimes.happened("state compared")
