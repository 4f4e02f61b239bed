"""Which partition a new dialog goes to.

Java producers, Spark and konverse place a key alike: murmur2, positive, modulo the number of partitions
(protocol.md section 2). The partition is chosen once and kept in the dialog's addresses.
"""

from __future__ import annotations

from struct import unpack_from
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_WORD: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's murmur2 of the bytes, as an unsigned 32-bit number."""
    words, left = divmod(len(key), 4)
    h = _SEED ^ len(key)
    for word in unpack_from(f"<{words}I", key):
        k = word * _M & _WORD
        h = h * _M & _WORD ^ (k ^ k >> _R) * _M & _WORD
    rest = key[-left:] if left else b""
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _WORD
    h = (h ^ h >> 13) * _M & _WORD
    return h ^ h >> 15


def choose_partition(key: bytes, partitions: int) -> int:
    """The partition of a key among `partitions` >= 1, as Kafka's default partitioner chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def choose_home(conversation: bytes, partitions: int, owned: frozenset[int]) -> int:
    """The home partition of a new dialog: one of `owned`, so that replies come back to this process, else any."""
    if owned:
        mine = sorted(owned)
        return mine[choose_partition(conversation, len(mine))]
    return choose_partition(conversation, partitions)
