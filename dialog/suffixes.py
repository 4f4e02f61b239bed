"""Ends of the headers of an owner's messages, made once for each message type."""

from __future__ import annotations

from konverse.schemas.envelope import encode_suffix
from konverse.schemas.identifiers import Address
from konverse.schemas.limits import SUFFIX_CACHE_ENTRIES_MAX
from konverse.schemas.records import Suffix


class Suffixes(dict[str, bytes]):
    """Message type -> end of the header, for the messages of one side.

    Those of a target name its partition: what an initiator's home answers to them must find the way.
    """

    __slots__ = ("_home",)

    def __init__(self, home: Address | None) -> None:
        super().__init__()
        self._home = home

    def __missing__(self, message_type: str) -> bytes:
        if len(self) >= SUFFIX_CACHE_ENTRIES_MAX:
            self.clear()
        suffix = self[message_type] = encode_suffix(Suffix(message_type, home=self._home))
        return suffix
