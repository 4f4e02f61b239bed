"""A partition whose records go through both folds: that of the product, and the verifier's."""

from __future__ import annotations

from konverse.bridge.verifier.fold.fold import SecondFold, as_said
from konverse.bridge.verifier.fold.ingest import ingest
from konverse.bridge.verifier.records import Record
from konverse.schemas.identifiers import owner_writer
from tests.kit.builders import Side


class Twice:
    """A partition, folded twice."""

    def __init__(self) -> None:
        self.first = Side("orders")
        self.address = self.first.address
        identity = self.first.state.identity
        self.second = SecondFold(self.address, owner_writer(identity.incarnation, identity.partition))
        self.second.incarnation = identity.incarnation
        self._offset = 0

    def take(self, header: bytes, body: bytes = b"") -> None:
        """A record arrives."""
        self.first.take(header, body)
        ingest(self.second, Record(self._offset, header, body, 0, self._offset))
        self._offset += 1

    def agree(self) -> None:
        """Check that both folds send the same records, and that the verifier finds no fault but forged records."""
        for address in {*self.first.state.streams, *self.second.outputs}:
            sent = [as_said(one.envelope, one.body or b"", 0) for one in self.first.outputs(address)]
            assert sent == [one._replace(order=0) for one in self.second.outputs.get(address, [])]
        assert [one for one in self.second.problems if not one.startswith("I23")] == []
