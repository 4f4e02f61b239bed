"""What the homes of a session's dialogs say of them and of its id, where this process reads or leads them."""

from __future__ import annotations

from konverse.dialog.endpoint import Endpoint
from konverse.dialog.hearing import hear_of_end, hear_of_id, needs_another_id
from konverse.dialog.mailbox import Bounced
from konverse.dialog.partition import Partition
from konverse.schemas.records import Notice, WriterClosed

from .serving import Serving


class Hearing(Serving):
    """The part of a sender that hears what homes say."""

    def hear_of_end(self, home: Partition, endpoint: Endpoint) -> None:
        """The home of a dialog, which this process leads, has heard that its peer has ended."""
        with self._lock:
            hear_of_end(self.session, home, endpoint)

    def hear_of_id(self, said: Notice | WriterClosed | Bounced) -> None:
        """A home, which this process leads, has heard of a writer: maybe the session is not heard under its id."""
        with self._lock:
            shut_out = hear_of_id(self.session, said)
        if shut_out:
            self.doubt()

    def hear_from(self, home: Partition) -> None:
        """A home is led here from now on: what it has heard of the session's id before."""
        with self._lock:
            shut_out = needs_another_id(self.session, home)
        if shut_out:
            self.doubt()

    def doubt(self) -> None:
        """The present id is not heard somewhere: take another one, which asks how far it was."""
        with self._changed:
            if not (self._closed or self.session.closing or self.session.over):
                self._renewing.give_up()
                self._look()
                self._changed.notify_all()

    def ended_by_peer(self, conversation: bytes) -> None:
        """News from the dialog's home: sends are refused from now on."""
        with self._lock:
            self.session.ended_by_peer(conversation)
