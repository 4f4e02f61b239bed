"""The last log line of a reader that closes while Kafka does not answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from konverse.bridge.owner.closing_log import log_unreleased
from konverse.dialog.owner.events import Halted, Stopped

if TYPE_CHECKING:
    from konverse.dialog.owner.owner import Owner
    from konverse.schemas.catalog.objects import Queue

QUEUE = cast("Queue", SimpleNamespace(name="Orders"))
OWNER = cast("Owner", None)


def test_partitions_whose_last_commit_is_unknown_are_named_and_whether_something_is_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unknown = Stopped("the outcome of an append is unknown")
    log_unreleased(QUEUE, [(2, OWNER, unknown), (0, OWNER, unknown)])
    (said,) = caplog.messages
    assert "the reader of queue 'Orders' was closed before Kafka confirmed the last commit of partitions 0, 2" in said
    assert "are committed, or the next reader receives their messages again" in said


def test_nothing_is_logged_for_partitions_that_halted_or_that_another_process_claimed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log_unreleased(QUEUE, [(0, OWNER, Stopped("claimed", fenced=True)), (1, OWNER, Halted("broken"))])
    log_unreleased(QUEUE, [])
    assert not caplog.messages
