"""Transactions whose owner has lost its partition end without effect, and make no further requests."""

from __future__ import annotations

from uuid import UUID

import pytest

from konverse.bridge.owner.driver import LateTransactions
from konverse.schemas.errors import GroupLocked
from tests.kit.builders import conversations
from tests.kit.driver import Driver


def test_a_late_transaction_is_counted_and_gets_no_further_group() -> None:
    driver, late = Driver(), LateTransactions()
    driver.lead()
    driver.arrive(*conversations("a", "b", "c"))
    one, other = driver.owner.take(), driver.owner.take()
    assert one is not None
    assert other is not None
    group = UUID(bytes=other.dialog.group_id)
    with pytest.raises(GroupLocked):
        one.move(one.dialog, group)
    late.attach(driver.owner.staging.context)
    with one:
        one.move(one.dialog, group)
        assert one.next_group() is None
    assert late.count == 1
