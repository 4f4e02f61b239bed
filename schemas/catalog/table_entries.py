"""The keys of a routing table and their services, as an immutable map that is cheap to change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple
from zlib import crc32

from konverse.schemas.limits import ROUTING_TABLE_BUCKETS


class Target(NamedTuple):
    """A service to which conversations are routed."""

    service: str
    broker_instance: str | None = None
    """Id of the service's database, as for `begin_dialog`; None: wherever routes lead."""


Bucket = Mapping[str, Target]

_NO_ENTRIES: Final[Bucket] = {}
_NO_BUCKETS: Final[tuple[Bucket, ...]] = (_NO_ENTRIES,) * ROUTING_TABLE_BUCKETS


class Entries(Mapping[str, Target]):
    """The keys of a routing table, immutable and in no particular order.

    A changed copy shares the unchanged buckets with its original.
    """

    __slots__ = ("_buckets", "_count")

    def __init__(self, entries: Mapping[str, Target] | None = None) -> None:
        self._buckets: tuple[Bucket, ...] = _NO_BUCKETS
        self._count = 0
        if entries:
            self._put(entries, ())

    def changed(self, put: Mapping[str, Target], remove: Collection[str]) -> Entries:
        """A copy without the keys of `remove`, then with those of `put`. Only the buckets of these keys are copied."""
        made = Entries()
        made._buckets, made._count = self._buckets, self._count
        made._put(put, remove)
        return made

    def targets(self) -> list[Target]:
        """All services in the table, each once, ordered by name."""
        found = {target for bucket in self._buckets for target in bucket.values()}
        named = sorted((target.service, target.broker_instance or "") for target in found)
        return [Target(service, instance or None) for service, instance in named]

    def _put(self, put: Mapping[str, Target], remove: Collection[str]) -> None:
        touched: dict[int, dict[str, Target]] = {}
        for key in remove:
            self._touch(touched, key).pop(key, None)
        for key, target in put.items():
            self._touch(touched, key)[key] = target
        buckets = list(self._buckets)
        for number, bucket in touched.items():
            self._count += len(bucket) - len(buckets[number])
            buckets[number] = bucket
        self._buckets = tuple(buckets)

    def _touch(self, touched: dict[int, dict[str, Target]], key: str) -> dict[str, Target]:
        number = _bucket_of(key)
        found = touched.get(number)
        if found is None:
            found = touched[number] = dict(self._buckets[number])
        return found

    def __getitem__(self, key: str) -> Target:
        return self._buckets[_bucket_of(key)][key]

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._count

    def __hash__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<Entries of {self._count} keys>"

    def __reduce__(self) -> tuple[type[Entries], tuple[dict[str, Target]]]:
        return Entries, (dict(self),)


def _bucket_of(key: str) -> int:
    return crc32(key.encode("utf-8", "surrogatepass")) % ROUTING_TABLE_BUCKETS
