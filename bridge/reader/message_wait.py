"""Decides when an iteration with a `timeout` has waited long enough for a message."""

from __future__ import annotations

from collections.abc import Callable


class MessageWait:
    """Measures the time without a message. Acknowledgements, copies and foreign records do not restart it.

    When the time has passed, the records that are in the logs then are read first: a message may be among them.
    """

    def __init__(self, timeout_s: float | None, now_s: float, unread: int) -> None:
        """`unread`: number of messages that wait, ready or not."""
        self._timeout_s = timeout_s
        self._since_s = now_s
        self._unread = unread
        self._ends: dict[int, int] | None = None
        """Partition -> end of its data log when the time had passed; None before that."""

    def grew(self, unread: int) -> bool:
        """Whether more messages wait than at the last call."""
        known, self._unread = self._unread, unread
        return unread > known

    def restart(self, now_s: float) -> None:
        """Measure anew: a message is ready, or one has arrived."""
        self._since_s, self._ends = now_s, None

    def over(
        self, now_s: float, *, reading: bool, ends: Callable[[], dict[int, int]], read_to: Callable[[int], int | None]
    ) -> bool:
        """Whether the time has passed, and the logs were read to the ends that they had then.

        `reading`: the last poll has found records. `read_to` returns the next offset to read in a partition, None when
        it is not read here any more.
        """
        if self._timeout_s is None or now_s - self._since_s < self._timeout_s:
            return False
        if not reading:
            return True
        if self._ends is None:
            self._ends = ends()
        places = ((read_to(number), end) for number, end in self._ends.items())
        return all(at is None or at >= end for at, end in places)
