"""What a process keeps in mind of what it looked up in the catalog."""

from __future__ import annotations

from typing import Any

import pytest

from konverse.bridge.catalog import Catalog
from konverse.schemas.catalog import Change, Contract, MessageType, SentBy, encode_change
from konverse.schemas.errors import NotInContract
from konverse.schemas.records import Role

KIND, CONTRACT = "//sales/Order", "//sales/Ordering"


def test_what_was_looked_up_before_a_change_does_not_count_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka: Any = None
    catalog = Catalog(kafka, "default", "sales")
    monkeypatch.setattr(catalog, "refresh", lambda: None)

    def change(offset: int, kind: str, value: MessageType | Contract) -> None:
        catalog._fold(offset, encode_change(Change(offset, "sales", kind, value.name, value)))

    change(0, "message type", MessageType(KIND))
    change(1, "contract", Contract(CONTRACT, {KIND: SentBy.INITIATOR}))
    get = catalog.get

    def get_while_another_one_changes_it(kind: Any, name: str) -> Any:
        found = get(kind, name)
        if kind is Contract:
            change(2, "contract", Contract(CONTRACT))
        return found

    monkeypatch.setattr(catalog, "get", get_while_another_one_changes_it)
    catalog.check_send(CONTRACT, Role.INITIATOR, KIND)
    monkeypatch.setattr(catalog, "get", get)
    with pytest.raises(NotInContract):
        catalog.check_send(CONTRACT, Role.INITIATOR, KIND)
