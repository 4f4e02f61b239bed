"""Whether a message may be received: checks its contract against the catalog, and its body against its message type.

The receiver judges, by the catalog as its process knows it: an unknown name is looked up at once, and changes are
noticed within seconds (protocol.md section 7.8).

Source: behaviours 3 to 6, 16, 132, 133.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from konverse.bridge.runtime.log_throttle import LogThrottle
from konverse.bridge.validation.rules import SchemaRule
from konverse.bridge.validation.validator import BodyFinding, EncodedRule, Validator
from konverse.dialog.state.endpoint import Terms
from konverse.dialog.transaction.received import Clauses, Rule
from konverse.schemas.catalog.objects import Contract, MessageType, Queue, Service, Validation
from konverse.schemas.catalog.priorities import BrokerPriority, level_of
from konverse.schemas.catalog.schema_collections import XmlSchemaCollection
from konverse.schemas.errors import ValidatorUnavailable
from konverse.schemas.identifiers import Role
from konverse.schemas.limits import WAY_ENTRIES_MAX
from konverse.schemas.system_messages import Rejection
from konverse.schemas.validation import fault_of
from konverse.schemas.wire.records import Begin

from .catalog import Catalog

log: Final = logging.getLogger("konverse.judge")

ACCEPTED: Final = 0
CONTRACT_NOT_SUPPORTED: Final = 8408
CONTRACT_NOT_FOUND: Final = 8425
TYPE_NOT_FOUND: Final = 8428
BODY_NOT_VALID: Final = 8430
SENT_BY_TARGET: Final = 8437
SENT_BY_INITIATOR: Final = 8457
SERVICE_NOT_FOUND: Final = 8470
TYPE_NOT_IN_CONTRACT: Final = 8498
NO_XML: Final = (9616, 9615)
"""Errors for a body that fails XML validation, by the receiver's role: initiator, target."""
NOT_EXAMINED: Final = 9704
"""The body could not be validated within the limits of time and memory."""
PAUSE_S_MIN: Final = 1.0
"""First pause of a partition while the validator is unavailable. Each further one is twice as long."""
PAUSE_S_MAX: Final = 30.0


class BodyCheck(NamedTuple):
    """The check that a message type demands of bodies."""

    validation: Validation
    schema: EncodedRule | None
    """The schema, encoded for the validator; None: no schema."""


class Rules(NamedTuple):
    """Policy of a reader's owners: admission, sending, beginning dialogs."""

    send: Rule
    """Raises for a message that a handler may not send."""
    judge: CatalogJudge | None = None
    """Rejects messages that may not be received; None: all are accepted."""
    begin: Callable[[Queue, int, Clauses], tuple[bytes, Begin]] | None = None
    """Makes the dialog that a handler begins in a partition; None: handlers may not begin dialogs."""
    look_after: Callable[[Queue], None] | None = None
    """Called with each former queue of a service on the queue being read; None: former queues are left alone."""
    catalog: Catalog | None = None
    """Knows the topic ids of destination queues; None: a topic's id is taken from its first description."""


class CatalogJudge:
    """Judges messages for the owners of one reader (implements `konverse.dialog.state.partition.AdmissionPolicy`)."""

    def __init__(self, catalog: Catalog, validator: Validator, *, predicts: bool = False) -> None:
        """`predicts`: it foresees an owner's verdicts, without warnings, and accepts bodies that it cannot validate."""
        self._catalog = catalog
        self._validator = validator
        self._predicts = predicts
        self._said = LogThrottle()
        self.pause_s = 0.0
        """How long a partition waits for the validator before it is claimed again; 0 while messages are validated."""
        self._version = catalog.version
        self._allowed: dict[tuple[str, str, Role, str], BodyCheck] = {}
        """Accepted combination of service, contract, role and message type -> the check of its bodies."""
        self._levels: dict[tuple[str, str, str], int] = {}
        """Priorities by contract, local and remote service."""
        self._unavailable = LogThrottle()

    def changed(self) -> bool:
        """Whether the catalog has changed since the last call. If so, forget all cached verdicts."""
        if self._catalog.version == self._version:
            return False
        self._version = self._catalog.version
        self._allowed.clear()
        self._levels.clear()
        return True

    def verdict(self, terms: Terms, role: Role, message_type: str, body: bytes | None) -> Rejection | None:
        """Why the side `role` may not receive this message; None when it may."""
        key = terms.service, terms.contract, role, message_type
        body_check = self._allowed.get(key)
        if body_check is None:
            reason = self._reason(terms, role, message_type)
            if reason:
                self._log_refusal(
                    (*key, reason),
                    f"messages of type {message_type!r} from service {terms.far_service!r} to service "
                    f"{terms.service!r} under contract {terms.contract!r} are rejected with error {reason}",
                )
                return Rejection(reason)
            body_check = self._allowed[key] = self._body_check(self._catalog.get(MessageType, message_type))
        fault, examined = self._look(body_check, body, terms, message_type)
        if not fault:
            return None
        self._log_refusal(
            key,
            f"a message of type {message_type!r} from service {terms.far_service!r} to service {terms.service!r} is "
            f"rejected: {fault}",
        )
        reason = NO_XML[role] if body_check.validation.is_xml else BODY_NOT_VALID
        return Rejection.of(reason if examined else NOT_EXAMINED, fault)

    def _body_check(self, message_type: MessageType) -> BodyCheck:
        rule = rule_of(self._catalog, message_type)
        return BodyCheck(message_type.validation, None if rule is None else EncodedRule.of(rule))

    def _look(self, body_check: BodyCheck, body: bytes | None, terms: Terms, message_type: str) -> BodyFinding:
        if body_check.schema is None:
            return BodyFinding(fault_of(body_check.validation, body))
        try:
            finding = self._validator.validate(body_check.schema, body or b"")
        except ValidatorUnavailable as error:  # the partition is claimed again, and its messages are validated again
            if self._predicts:
                return BodyFinding("")
            self.pause_s = min(PAUSE_S_MAX, max(PAUSE_S_MIN, 2 * self.pause_s))
            if self._unavailable.due():
                log.error(  # noqa: TRY400  # text suffices
                    "messages of type %r to service %r wait, because the validator is unavailable: %s",
                    message_type,
                    terms.service,
                    error,
                )
            raise
        self.pause_s = 0.0
        return finding

    def _log_refusal(self, subject: tuple[object, ...], text: str) -> None:
        """Log a refusal, throttled: a foreign client can cause refusals as fast as it writes."""
        if self._predicts:
            log.debug("%s", text)
        elif count := self._said.due(subject):
            log.warning("%s%s", text, f" ({count:,} so far)" if count > 1 else "")

    def level(self, contract: str, local_service: str, remote_service: str) -> int:
        """The level of a new side, by the broker priorities known here; Kafka is not asked (behaviours 216, 217)."""
        names = contract, local_service, remote_service
        level = self._levels.get(names)
        if level is None:
            if len(self._levels) >= WAY_ENTRIES_MAX:
                self._levels.clear()
            level = self._levels[names] = level_of(self._catalog.known(BrokerPriority), *names)
        return level

    def examines(self, message_type: str) -> bool:
        """Whether bodies of this type are checked. True for an unknown type."""
        found = self._catalog.find(MessageType, message_type)
        return found is None or found.validation is not Validation.NONE

    def has(self, queue: Queue, service: str) -> bool:
        """Whether a service of that name is on this queue, or was before it moved to another one (behaviour 19).

        Reads the catalog again before it returns False: a conversation may arrive from another queue after an ALTER
        SERVICE that this process does not know yet. Raises Unavailable when the catalog cannot be read.
        """
        found = self._catalog.find(Service, service)
        if found is not None and queue.name not in (found.queue, *found.queues_before):
            self._catalog.refresh()
            found = self._catalog.find(Service, service)
        return found is not None and queue.name in (found.queue, *found.queues_before)

    def departed_services(self, queue: Queue) -> Iterator[tuple[str, Queue]]:
        """Services that have left this queue, each with its present queue. Raises Unavailable."""
        for service in self._catalog.all(Service):
            if queue.name in service.queues_before:
                yield service.name, self._catalog.get(Queue, service.queue)

    def former_queues(self, queue: Queue) -> list[Queue]:
        """Former queues of the services that are on this one, as far as known here. Raises Unavailable."""
        services = [service for service in self._catalog.known(Service) if service.queue == queue.name]
        names = sorted({name for service in services for name in service.queues_before})
        return [left for name in names if (left := self._catalog.find(Queue, name)) is not None]

    def has_contract(self, name: str) -> bool:
        """Whether the contract exists. Raises Unavailable when the catalog cannot be read."""
        return self._catalog.find(Contract, name) is not None

    def check_service(self, name: str) -> None:
        """Raise ServiceNotFound unless the service exists."""
        self._catalog.get(Service, name)

    def keeps(self, queue: Queue) -> bool:
        """Whether the queue still exists, in the same incarnation, as far as known here."""
        known = self._catalog.find(Queue, queue.name)
        return known is not None and known.incarnation == queue.incarnation

    def receives(self, queue: Queue) -> bool:
        """Whether the STATUS of the queue is ON, as far as known here. True for a queue that was dropped."""
        known = self._catalog.get_known(Queue, queue.name)
        return known is None or known.incarnation != queue.incarnation or known.status

    def letter(self, message_type: str) -> str:
        """The letter of a message type's validation (`letter_of`)."""
        return letter_of(self._catalog, message_type)

    def _reason(self, terms: Terms, role: Role, message_type: str) -> int:
        contract = self._catalog.find(Contract, terms.contract)
        if contract is None:
            return CONTRACT_NOT_FOUND
        service = self._catalog.find(Service, terms.service)
        if service is None:
            return SERVICE_NOT_FOUND
        if role is Role.TARGET and terms.contract not in service.contracts:
            return CONTRACT_NOT_SUPPORTED
        if self._catalog.find(MessageType, message_type) is None:
            return TYPE_NOT_FOUND
        sent_by = contract.sent_by.get(message_type)
        if sent_by is None:
            return TYPE_NOT_IN_CONTRACT
        if sent_by.allows(Role(1 - role)):
            return ACCEPTED
        return SENT_BY_INITIATOR if role is Role.TARGET else SENT_BY_TARGET


def rule_of(catalog: Catalog, message_type: MessageType) -> SchemaRule | None:
    """The schema rule of a message type, for the validator process; None for a type without a schema.

    Raises SchemaCollectionNotFound.
    """
    if message_type.validation is Validation.VALID_XML:
        documents = catalog.get(XmlSchemaCollection, message_type.schema_collection).documents
        return SchemaRule(message_type.validation, documents)
    if message_type.validation.takes_schema:
        return SchemaRule(message_type.validation, (message_type.schema,))
    return None


def letter_of(catalog: Catalog, message_type: str) -> str:
    """The letter of a message type's validation, as in the views' `validation` columns; N for a dropped type."""
    found = catalog.find(MessageType, message_type)
    return "N" if found is None else found.validation.letter
