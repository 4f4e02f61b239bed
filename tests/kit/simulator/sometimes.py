"""Rare paths that a long run must have walked: a test that never meets them proves nothing about them."""

from __future__ import annotations

from collections import Counter
from typing import Final

PATHS: Final = {
    "claim lost": "an owner read its CLAIM back and another one had won",
    "offset judged": "a commit was acknowledged behind another record, and the journal was read and judged",
    "offset judged, valid": "and it counted",
    "offset judged, invalid": "and it did not count",
    "invalid COMMIT": "a COMMIT stands in a journal and does not count",
    "invalid CLAIM": "a CLAIM stands in a journal and does not count",
    "zombie COMMIT": "a delayed COMMIT landed behind a successor's CLAIM",
    "late CLAIM": "a delayed CLAIM landed",
    "late data": "a delayed record landed in a data log",
    "late data of the dead": "and whoever sent it had crashed or replaced the producer",
    "append unknown": "an owner did not learn the outcome of an append and stopped",
    "append unknown, landed": "and the record was in the journal",
    "append twice": "a journal record was appended twice by one request",
    "parts": "a commit was too large for one record",
    "parts apart": "and something stood between its parts, or they stood in another order",
    "snapshot written": "an owner wrote a snapshot, and knows that it is whole",
    "snapshot lost": "an owner wrote a snapshot, and does not know that it is whole",
    "recovered from a snapshot": "an owner recovered from a snapshot and the journal behind it",
    "snapshot rotten": "a byte of the newest snapshot changed",
    "verified since a snapshot": "the verifier began at a snapshot, and came to the same",
    "truncated": "an owner deleted what is older than two snapshots",
    "truncated under a reader": "what an owner was about to read was deleted",
    "undecodable": "a journal holds bytes that are no record",
    "stale end": "an owner recovered from an end of the journal that was too low",
    "short read": "a read returned less than was asked for",
    "read twice": "an owner was given data records that it had already",
    "hole": "a data log has a transaction marker",
    "duplicate": "a record was dropped because its counter was there already",
    "gap": "a record was dropped because one before it is missing",
    "foreign": "a record for another incarnation was ignored",
    "malformed": "a record with a broken envelope was ignored",
    "bounced": "a message was carried back to its writer",
    "bounced, writer closed": "because its writer was closed by a successor",
    "bounced, tombstone": "because its conversation ended before it began",
    "refused BEGIN": "a BEGIN of a closed writer was answered to the target",
    "discarded": "a message came for a side that had ended, or was unread when it ended",
    "overtaken": "a handler's transaction was dropped: a session ended the conversation meanwhile",
    "rolled back": "a handler failed and its messages waited again",
    "state changed": "a handler met a conversation that ended under its hands",
    "partial": "a handler left messages unread",
    "Error overtook": "an Error was received before messages with lower numbers",
    "group of several": "a transaction held messages of two conversations of one group",
    "several writers": "two writers sent in one direction of a conversation",
    "misnumbered": "two writers numbered their messages alike",
    "high numbers": "a counter left the range of the first look-up table",
    "producer replaced": "an owner's producer of outputs was replaced",
    "producer refused": "because one destination refused",
    "producer asked for": "an owner asked for it: offsets contradicted the order of its outputs",
    "session restarted": "a session handed over again what did not count",
    "destination parked": "because one destination refused",
    "session asked for a producer": "because offsets contradicted the order of its records",
    "queue full": "a session refused a send because too much was on its way",
    "ended early": "a session refused a send because the peer had ended",
    "session crashed": "a session died and its requests lived on",
    "session closed": "a session ended cleanly and said so to every destination",
    "closed by a successor": "somebody closed the writer of a session that was dead or slept",
    "owner crashed": "an owner died",
    "owner crashed before emission": "after a commit counted and before its outputs were handed over",
    "owner crashed in a commit": "with a commit on its way",
    "outbox recovered": "an owner recovered outputs that were not acknowledged, and emitted them",
    "released": "an owner gave its partition back",
    "clean claim": "a claim followed a release",
    "slept": "a process stood still and went on",
    "view refused": "the view refused a stale write",
    "view lost": "the view was lost and written again",
    "nothing staged": "time alone made an owner commit",
    "moved": "an endpoint moved to another partition",
    "moved with unread": "with messages that nobody had received",
    "moved again": "and had moved before",
    "moved back": "to where it had lived before",
    "move refused": "an owner refused to move an endpoint",
    "installed from pieces": "the state of an endpoint came in several records",
    "END met a stub": "the peer's END followed an endpoint that had moved",
    "END CONVERSATION met a stub": "a session's END CONVERSATION did",
    "CLOSED walked on": "a stub was removed that had another one before it",
    "bounced behind a move": "a message followed an endpoint and came too late",
    "view compared": "a write to the view was compared with a fold of the logs",
    "state compared": "an owner's live state was compared with a fold of the logs",
}
"""Name of each path, and what it means."""


class Sometimes:
    """How often each path was walked."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def happened(self, path: str, times: int = 1) -> None:
        """The path was walked."""
        assert path in PATHS, path
        if times:
            self.counts[path] += times

    @staticmethod
    def missing(counts: Counter[str]) -> list[str]:
        """Paths that were never walked."""
        return [path for path in PATHS if not counts[path]]
