"""Statements about message types, and about the XML schema collections that they may name."""

from __future__ import annotations

from konverse.bridge.catalog.judge import rule_of
from konverse.bridge.catalog.objects import SYSTEM_TYPES
from konverse.bridge.runtime.arguments import checked
from konverse.bridge.validation.rules import Rule
from konverse.bridge.validation.validator import Known, Validator
from konverse.schemas.catalog.objects import Contract, MessageType, Validation
from konverse.schemas.catalog.schema_collections import XmlSchemaCollection
from konverse.schemas.errors import NothingChanged, SystemObject

from .ddl import Defining, Use


class MessageTypes(Defining):
    """The part of a broker for statements about message types and XML schema collections."""

    _validator: Validator

    @checked
    def create_message_type(
        self,
        name: str,
        validation: str | Validation = Validation.NONE,
        *,
        schema_collection: str = "",
        schema: str = "",
        if_not_exists: bool = False,
    ) -> MessageType:
        """CREATE MESSAGE TYPE: bodies may be anything ("NONE"), or must be "EMPTY", "WELL_FORMED_XML" or fit a schema.

        "VALID_XML" validates against the XML schema collection named `schema_collection`. Extensions of konverse are
        "JSON_SCHEMA" and "AVRO" (a body is one datum in binary encoding), which validate against `schema`, a JSON
        document. All three need `pip install 'konverse[validation]'` wherever such messages are received.
        The receiver validates (behaviours 2 to 6): a message with an invalid body is not received, and its sender gets
        an Error.
        With `if_not_exists` (here and in the other CREATE statements), an existing object of the same definition is
        returned, and AlreadyExists says what differs.
        Raises InvalidValidation, InvalidSchema, SchemaCollectionNotFound, ValidatorUnavailable, AlreadyExists.
        """
        value = MessageType.of(name, validation, schema_collection, schema)
        return self._create(value, lambda: self._check_schema(value), if_not_exists=if_not_exists)

    @checked
    def alter_message_type(
        self, name: str, validation: str | Validation, *, schema_collection: str = "", schema: str = ""
    ) -> MessageType:
        """ALTER MESSAGE TYPE: another validation, for messages that arrive after receivers noticed it, within seconds.

        Queued messages are not validated again (behaviour 7). Raises MessageTypeNotFound, SystemObject, and what CREATE
        raises about the validation.
        """
        value = MessageType.of(name, validation, schema_collection, schema)

        def altered(_known: MessageType) -> MessageType:
            if name in SYSTEM_TYPES:
                raise SystemObject(f"{name!r} is a system message; its bodies are what the broker makes of them")
            self._check_schema(value)
            return value

        return self._alter(MessageType, name, altered)

    @checked
    def drop_message_type(self, name: str) -> None:
        """DROP MESSAGE TYPE. Raises MessageTypeNotFound, StillUsed as long as a contract contains it."""
        self._drop(MessageType, name, Use(Contract, lambda contract: name in contract.sent_by))

    @checked
    def create_xml_schema_collection(
        self, name: str, documents: list[str] | tuple[str, ...], *, if_not_exists: bool = False
    ) -> XmlSchemaCollection:
        """CREATE XML SCHEMA COLLECTION: XML Schema documents, of one or several namespaces.

        Imports of other namespaces are resolved within the collection; schemaLocation is ignored, nothing is fetched.
        Raises InvalidSchema, ValidatorUnavailable, AlreadyExists.
        """
        value = XmlSchemaCollection.of(name, documents)
        return self._create(value, lambda: self._check_collection(value), if_not_exists=if_not_exists)

    @checked
    def alter_xml_schema_collection(self, name: str, *, add: list[str] | tuple[str, ...]) -> XmlSchemaCollection:
        """ALTER XML SCHEMA COLLECTION ADD: further documents, for messages that arrive after receivers noticed them.

        Raises SchemaCollectionNotFound, InvalidSchema, NothingChanged, ValidatorUnavailable.
        """

        def altered(known: XmlSchemaCollection) -> XmlSchemaCollection:
            if not add:
                raise NothingChanged(f"ALTER of XML schema collection {name!r} adds nothing; name a document")
            value = XmlSchemaCollection.of(name, (*known.documents, *add))
            self._check_collection(value)
            return value

        return self._alter(XmlSchemaCollection, name, altered)

    @checked
    def drop_xml_schema_collection(self, name: str) -> None:
        """DROP XML SCHEMA COLLECTION. Raises SchemaCollectionNotFound, StillUsed as long as a message type names it."""
        self._drop(XmlSchemaCollection, name, Use(MessageType, lambda kind: kind.schema_collection == name))

    def _check_schema(self, value: MessageType) -> None:
        """Raise InvalidSchema when the type's schema cannot be used for validation."""
        rule = rule_of(self.catalog, value)
        if rule is not None:
            self._validator.check(Known.of(rule))

    def _check_collection(self, value: XmlSchemaCollection) -> None:
        self._validator.check(Known.of(Rule(Validation.VALID_XML, value.documents)))
