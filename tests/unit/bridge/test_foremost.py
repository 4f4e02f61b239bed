"""Which of several operators has dropped a message, when Kafka does not say."""

from __future__ import annotations

from uuid import uuid4

import pytest

from konverse.bridge.admin.completion import check_foremost
from konverse.bridge.kafka.clients import Kafka
from konverse.bridge.runtime.settings import Settings
from konverse.schemas.errors import OutcomeUnknown
from konverse.schemas.wire.instruction import Action, Instruction


def test_a_skip_is_unknown_when_the_instructions_cannot_be_read() -> None:
    kafka = Kafka(Settings.load(kafka="kafka://127.0.0.1:1", connect_timeout_s=0.2))
    skip = Instruction("sales", "Orders", uuid4().bytes, 2, Action.SKIP)
    with pytest.raises(
        OutcomeUnknown, match="was dropped; whether by this instruction or by an earlier one is unknown"
    ):
        check_foremost(kafka, skip, 7, b"key")
