"""Readers of explicit partitions."""

from __future__ import annotations

import pytest

from konverse.bridge.reader.reader import Reader
from konverse.dialog.owner.events import DataRead, Effect, JournalRead
from konverse.dialog.owner.owner import Owner
from tests.kit.digests import digest
from tests.kit.oracle import prove_exactly_once
from tests.kit.servers import Servers
from tests.kit.shop import (
    answer,
    connected,
    open_shop,
    queue_of,
    send_orders,
)

pytestmark = pytest.mark.stack


def test_a_reader_takes_its_explicit_partitions(servers: Servers, database: str) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker, partitions=4)
        sent = send_orders(broker, dialogs=20, messages=40)
        readers: list[Reader] = [broker.reader("Orders", partitions=pair, timeout=1) for pair in ((0, 1), (2, 3))]
        assert [reader.partitions for reader in readers] == [{0, 1}, {2, 3}]
        assert sum(answer(reader) for reader in readers) == 40
        for reader in readers:
            reader.close()
        prove_exactly_once(servers.bootstrap, queue_of(broker, "Orders"), queue_of(broker, "Shop"), sent)


def test_a_partition_is_recovered_piece_by_piece(
    servers: Servers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(servers.bootstrap, database) as broker:
        open_shop(broker)
        send_orders(broker, dialogs=20, messages=400)
        with broker.reader("Orders", batch=5, max_messages=2, timeout=1) as reader:
            assert answer(reader) == 400
            (before,) = (owner.fold for owner in reader.owners)
        pieces: list[int] = []

        def counted(owner: Owner, event: object, now_ms: int) -> list[Effect]:
            if isinstance(event, DataRead | JournalRead):
                pieces.append(owner.fold.state.ingest_to)
            return step(owner, event, now_ms)

        step = Owner.step
        monkeypatch.setattr(Owner, "step", counted)
        monkeypatch.setattr("konverse.bridge.owner.logs.READ_BYTES_MAX", 1)
        monkeypatch.setattr("konverse.bridge.kafka.log_reader.FETCH_RECORDS", 7)
        with broker.reader("Orders", partitions=(0,)) as reader:
            (after,) = (owner.fold for owner in reader.owners)
            before.state.now_ms = after.state.now_ms  # the only change that a CLAIM makes
            assert digest(after.state) == digest(before.state)
        assert len(pieces) > 50, "400 records and 40 commits, 8 of a log at a time"
        assert pieces == sorted(pieces)
