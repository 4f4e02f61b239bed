"""Message types, and the XML schema collections that they may name."""

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
    """The part of a broker that says what bodies may be."""

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
        """CREATE MESSAGE TYPE: bodies may be anything ("NONE"), or have to be "EMPTY", "WELL_FORMED_XML" or more.

        "VALID_XML" holds them against the XML schema collection named `schema_collection`; beyond the original
        "JSON_SCHEMA" and "AVRO" against `schema`, a JSON document (Avro: one datum in binary encoding). These need
        `pip install 'konverse[validation]'` wherever such messages are received.
        The receiver looks (behaviours 2 to 6): who sends another body gets an Error, and nobody receives it.
        Raises InvalidValidation, InvalidSchema, SchemaCollectionNotFound, ValidatorUnavailable, AlreadyExists. With
        `if_not_exists` (here and for what follows) an object of the same definition that is there already is returned
        instead, and AlreadyExists says what differs.
        """
        value = MessageType.of(name, validation, schema_collection, schema)
        return self._create(value, lambda: self._check_schema(value), if_not_exists=if_not_exists)

    @checked
    def alter_message_type(
        self, name: str, validation: str | Validation, *, schema_collection: str = "", schema: str = ""
    ) -> MessageType:
        """ALTER MESSAGE TYPE: another validation, for what arrives once receivers have noticed, within seconds.

        What is queued already stays as it is (behaviour 7). Raises MessageTypeNotFound, SystemObject, and what CREATE
        raises for what it says of bodies.
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
        """DROP MESSAGE TYPE. Raises MessageTypeNotFound, StillUsed as long as a contract has it."""
        self._drop(MessageType, name, Use(Contract, lambda contract: name in contract.sent_by))

    @checked
    def create_xml_schema_collection(
        self, name: str, documents: list[str] | tuple[str, ...], *, if_not_exists: bool = False
    ) -> XmlSchemaCollection:
        """CREATE XML SCHEMA COLLECTION: XML Schema documents, of one namespace or of several.

        One that imports another namespace finds it in the collection, wherever it says that it is: nothing is fetched.
        Raises InvalidSchema, ValidatorUnavailable, AlreadyExists.
        """
        value = XmlSchemaCollection.of(name, documents)
        return self._create(value, lambda: self._check_collection(value), if_not_exists=if_not_exists)

    @checked
    def alter_xml_schema_collection(self, name: str, *, add: list[str] | tuple[str, ...]) -> XmlSchemaCollection:
        """ALTER XML SCHEMA COLLECTION ADD: further documents, for what arrives once receivers have noticed.

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
        """Raise InvalidSchema when nothing could ever be held against it."""
        rule = rule_of(self.catalog, value)
        if rule is not None:
            self._validator.check(Known.of(rule))

    def _check_collection(self, value: XmlSchemaCollection) -> None:
        self._validator.check(Known.of(Rule(Validation.VALID_XML, value.documents)))
