"""The options of a writer, checked before anything is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from konverse.bridge.runtime.settings import OWN_PROPERTIES
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.identifiers import check_name
from konverse.schemas.system_messages import DEFAULT
from konverse.schemas.wire.batches import ABANDONED
from konverse.spark.connection.settings import (
    CLIENT_PREFIX,
    DEFAULT_DATABASE,
    DEFAULT_INSTANCE,
    TABLES_HAVE_NONE,
    bootstrap_servers,
    client_setting,
    unknown_option,
)
from konverse.spark.connection.settings import OPTIONS as READ_OPTIONS
from konverse.spark.connection.values import quoted, whole_number

FROM_SERVICE: Final = "from_service"
"""The option that every writer needs and no reader has."""

FOR_ALL_ROWS: Final = ("to_service", "message_type")
"""Options in place of the columns of the same names."""

ID: Final = "id:"
"""Prefix of an id in option 'query', which otherwise is a name. The id, a UUID, identifies the query on its own."""

_NUMBERED: Final = ("query", "batch")

OPTIONS: Final = (
    "bootstrap",
    "database",
    "instance",
    FROM_SERVICE,
    "to_services",
    *FOR_ALL_ROWS,
    "contract",
    "pool",
    *_NUMBERED,
    "deliveryTimeout",
)
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "path", "queryname"})
"""Options of a streaming query that Spark passes on to the format."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

DELIVERY_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Services, contract and query of a write, and how to reach Kafka."""

    bootstrap: str
    database: str
    instance: str
    from_service: str
    to_services: tuple[str, ...] | None
    """Services that rows may name; None: all that may be targets of the contract."""
    for_all_rows: Mapping[str, str]
    """Columns that the frame leaves out -> their value for all rows."""
    contract: str
    pool: str | None
    """Name under which writes share their conversations; None: this query has conversations of its own."""
    query: str | None
    """Query of a batch write: a name, or an id as a UUID; None: each write is a new query."""
    batch: int
    """Number of a batch write among those of its query."""
    checkpoint: str
    """Location of a streaming query's checkpoint, in one spelling; empty when no option gives it."""
    delivery_timeout_s: float
    """Time after which a row that Kafka has not acknowledged fails its task."""
    client: Mapping[str, str]
    """Settings for librdkafka."""


def parse_writer(options: Mapping[str, str], *, streaming: bool = False) -> WriteSettings:
    """Settings from the options of a writer; InvalidSettings or InvalidName names the option and the remedy.

    A stream numbers its batches by its checkpoint, so `query` and `batch` are for batch writes only.
    """
    known = {name.lower(): name for name in OPTIONS}
    given: dict[str, str] = {}
    client: dict[str, str] = {}
    checkpoint = ""
    for option, value in options.items():
        lower = option.lower()
        if lower.startswith(CLIENT_PREFIX):
            client[_client(option)] = value
        elif lower in known:
            given[known[lower]] = value
        elif lower not in _SPARKS_OWN:
            raise InvalidSettings(_unfit(option, value))
        elif lower == "checkpointlocation":
            checkpoint = _location(value)
    for kind in ("instance", "database"):
        check_name(kind, given.get(kind, "default"))
    if not given.get(FROM_SERVICE):
        raise InvalidSettings(
            "option 'from_service' is missing; give it the service in whose name the rows are sent: answers come to "
            f"its queue. {TABLES_HAVE_NONE}"
        )
    query_id(given.get("query", ""))  # refuses a wrong id
    return WriteSettings(
        bootstrap=bootstrap_servers(given.get("bootstrap")),
        database=given.get("database", DEFAULT_DATABASE),
        instance=given.get("instance", DEFAULT_INSTANCE),
        from_service=given[FROM_SERVICE],
        to_services=_targets(given),
        for_all_rows={name: given[name] for name in FOR_ALL_ROWS if _filled(name, given) is not None},
        contract=given.get("contract", DEFAULT),
        pool=_filled("pool", given),
        query=_filled("query", given),
        batch=_batch(given, streaming=streaming),
        checkpoint=checkpoint,
        delivery_timeout_s=_seconds("deliveryTimeout", given.get("deliveryTimeout")),
        client=client,
    )


def query_id(name: str) -> bytes | None:
    """The id that option 'query' gives after "id:", the application's own or that of OutcomeUnknown; None for a name.

    Raises InvalidSettings for anything else after "id:".
    """
    if not name.startswith(ID):
        return None
    try:
        return UUID(name.removeprefix(ID)).bytes
    except ValueError:
        raise InvalidSettings(
            f"option 'query' is {quoted(name)}: after {ID!r} come the 32 digits of a UUID, one of your own or that of "
            "an OutcomeUnknown; a name begins with something else"
        ) from None


def shown_id(query: bytes) -> str:
    """An id as option 'query' takes it."""
    return f"{ID}{query.hex()}"


def _client(option: str) -> str:
    setting = client_setting(option)
    if setting in OWN_PROPERTIES:
        raise InvalidSettings(
            f"option {option!r} cannot be changed: konverse's guarantees depend on its own value; remove it"
        )
    return setting


def _unfit(option: str, value: str) -> str:
    """The reason why a writer refuses an option: the option belongs to reads, as those of a view do, or is unknown."""
    if option.lower() in {name.lower() for name in READ_OPTIONS}:
        return (
            f"option {option!r} (here {quoted(value)}) belongs to a read, but these options are used to write: remove "
            "it to write. A view of the format konverse cannot be written to (INSERT INTO): write with df.write.format("
            f"'konverse') and the option {FROM_SERVICE!r}"
        )
    return unknown_option(option, "a writer of the format konverse", OPTIONS)


def _location(value: str) -> str:
    """The location of a checkpoint in one spelling, whatever the working directory: the stream's id depends on it."""
    path = value.removeprefix("file://").removeprefix("file:")
    if _SCHEME.match(path):
        return value.rstrip("/")
    if not Path(path).is_absolute():
        raise InvalidSettings(
            f"option 'checkpointLocation' is {quoted(value)}; give an absolute path, with a scheme (hdfs:/…) or from "
            "the root: the path identifies the stream, and must not depend on the folder in which the driver is started"
        )
    return str(Path(path))


def _targets(given: Mapping[str, str]) -> tuple[str, ...] | None:
    value = given.get("to_services")
    if value is None:  # `to_service` is one name, which may have commas, and blanks at its ends
        return (given["to_service"],) if "to_service" in given else None
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not names:
        raise InvalidSettings("option 'to_services' is empty; name services, with commas between them, or leave it out")
    return names


def _filled(option: str, given: Mapping[str, str]) -> str | None:
    value = given.get(option)
    if value is not None and not value.strip():
        raise InvalidSettings(f"option {option!r} is empty; give it a name, or leave it out")
    return value


def _batch(given: Mapping[str, str], *, streaming: bool) -> int:
    for option in _NUMBERED if streaming else ():
        if option in given:
            raise InvalidSettings(f"option {option!r} is for batch writes; remove it: a stream has its checkpoint")
    value = given.get("batch")
    if value is None:
        if "query" in given:
            raise InvalidSettings(
                "option 'query' needs 'batch', a number that rises from write to write: rows written under both are "
                "not written again"
            )
        return 0
    if "query" not in given:
        raise InvalidSettings("option 'batch' numbers the batches of a query; give 'query' too")
    batch = whole_number(value.strip(), ABANDONED - 1)
    if batch is None:
        raise InvalidSettings(
            f"option 'batch' is {quoted(value)}; give a number, 0 to {ABANDONED - 1}, that rises from batch to batch"
        )
    return batch


def _seconds(option: str, value: str | None) -> float:
    if value is None:
        return DELIVERY_TIMEOUT_S
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 86_400:
        raise InvalidSettings(f"option {option!r} is {quoted(value)}; give seconds, 0.1 to 86400")
    return seconds
