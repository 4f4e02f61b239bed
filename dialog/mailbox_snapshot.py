"""Mailboxes in a snapshot (protocol.md section 7.5)."""

from __future__ import annotations

from typing import Any

from konverse.schemas.records import Bounce, BounceReason, address_from_avro, address_to_avro

from .mailbox import Bounced
from .partition import Partition


def bounced_of(bounced: Bounced) -> dict[str, Any]:
    """A message that came back."""
    writer, counter, at, reason = bounced.bounce
    return {
        "session": bounced.session,
        "writer": writer,
        "counter": counter,
        "at": address_to_avro(at),
        "reason": reason,
        "conversation": bounced.conversation,
        "sequence": bounced.sequence,
        "type": bounced.message_type,
        "body": bounced.body,
        "key": bounced.key,
    }


def restore_mailbox(state: Partition, entries: list[dict[str, Any]]) -> None:
    """What was kept."""
    for item in entries:
        at = address_from_avro(item["at"])
        bounce = Bounce(item["writer"], item["counter"], at, BounceReason(item["reason"]))
        what = item["conversation"], item["sequence"], item["type"], item["body"], item["key"]
        state.mailbox.keep(Bounced(item["session"], bounce, *what))
