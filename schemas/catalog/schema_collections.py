"""XML schema collections: the schemas of VALID_XML (behaviour 5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from konverse.schemas.errors import InvalidSchema
from konverse.schemas.identifiers import check_name
from konverse.schemas.limits import SCHEMA_BYTES_MAX, SCHEMA_DOCUMENTS_ENTRIES_MAX


@dataclass(frozen=True, slots=True)
class XmlSchemaCollection:
    """XML Schema documents under one name, for one namespace or several."""

    name: str
    documents: tuple[str, ...]

    @classmethod
    def of(cls, name: str, documents: Iterable[str]) -> XmlSchemaCollection:
        """The collection of that name; raises InvalidSchema for no, too many, too large or repeated documents.

        The content of the documents is not checked.
        """
        value = cls(check_name("XML schema collection", name), tuple(documents))
        if not 1 <= len(value.documents) <= SCHEMA_DOCUMENTS_ENTRIES_MAX:
            raise InvalidSchema(
                f"XML schema collection {name!r} has {len(value.documents)} documents; "
                f"1 to {SCHEMA_DOCUMENTS_ENTRIES_MAX} are allowed"
            )
        if len(set(value.documents)) < len(value.documents):
            raise InvalidSchema(f"XML schema collection {name!r} has the same document twice; give it once")
        check_schema_size(f"XML schema collection {name!r}", value.documents)
        return value


def check_schema_size(what: str, documents: Iterable[str]) -> None:
    """Raise InvalidSchema when the documents together are larger than a catalog record allows."""
    try:
        size = sum(len(document.encode("utf-8")) for document in documents)
    except UnicodeEncodeError as error:
        raise InvalidSchema(f"{what} has an invalid character: {error.reason}") from None
    if size > SCHEMA_BYTES_MAX:
        raise InvalidSchema(f"{what} has {size} bytes of schemas; at most {SCHEMA_BYTES_MAX} are allowed")
