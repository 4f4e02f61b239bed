"""The options of `format("konverse")`, checked before anything is read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal
from uuid import UUID

from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.identifiers import check_name, data_topic, incarnation_tag

from .choices import conversations_of, partitions_of
from .values import LONG_MAX, PARTITION_MAX, quoted, whole_number

OPTIONS: Final = (
    "bootstrap",
    "database",
    "queue",
    "instance",
    "topic",
    "incarnation",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "mode",
    "include",
    "maxRows",
    "failOnDataLoss",
    "stateFolder",
    "partitions",
    "conversations",
)
TABLE_PROPERTY: Final = "provider"
"""An option that Spark adds for CREATE TABLE, and for nothing else."""

TABLES_HAVE_NONE: Final = (
    "A table over konverse has no options, as Spark keeps none of a table made with saveAsTable or CREATE TABLE: use "
    "df.write.format('konverse').save(), or CREATE TEMPORARY VIEW … USING konverse OPTIONS (…)"
)
"""Part of each error about a missing option: the option may be missing because the frame is a table."""

CLIENT_PREFIX: Final = "kafka."
"""`kafka.<setting>` goes to librdkafka as `<setting>`."""

DEFAULT_INSTANCE: Final = "konverse"
DEFAULT_DATABASE: Final = "default"
"""The defaults of `konverse.connect`."""

FIXED: Final[dict[str, Any]] = {
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,  # the last offset may be that of a transaction's marker, which is not a record
    "isolation.level": "read_committed",
    "max.poll.interval.ms": 86_400_000,  # Spark may pause a task for long
}
"""Client settings on which correctness depends; options cannot change them."""

_SERVER: Final = re.compile(r"(?:kafka://)?((?:\[[0-9A-Fa-f:.]+\]|[^\s,:/\[\]]+):(\d{1,5}))/?")


class Mode(Enum):
    """The meaning of a row of a read."""

    MESSAGES = "messages"
    JOURNAL = "journal"
    CONVERSATIONS = "conversations"
    RETURNED = "returned"


CHOICES: Final = {"partitions": (Mode.MESSAGES, Mode.JOURNAL), "conversations": (Mode.MESSAGES,)}
"""Options that choose the partitions or conversations of a batch read, and the modes that have them."""


@dataclass(frozen=True, slots=True)
class Since:
    """The first record that was written at this time or later; the end of the log when there is none."""

    time_ms: int


Position = int | Literal["earliest", "latest"] | Since


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where reading starts or ends, per partition."""

    default: Position
    partitions: Mapping[int, Position]

    def of(self, partition: int) -> Position:
        """The position for one partition."""
        return self.partitions.get(partition, self.default)


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The range of a read, and how to reach Kafka."""

    bootstrap: str
    topic: str
    queue: str | None
    """Name of the queue when the topic was derived from it."""
    database: str
    instance: str
    mode: Mode
    tag: bytes | None
    """First four bytes of the incarnation in the option; None: not given, see `tag_of`."""
    starting: Offsets
    ending: Offsets
    include_all: bool
    include_groups: bool
    """Whether messages have the column `conversation_group`."""
    of_streams: tuple[str, ...]
    """Given options that only a stream has."""
    max_rows: int | None
    """Bound on the records of a micro-batch; None: no bound."""
    fail_on_data_loss: bool
    """Whether a stream fails when records were deleted before it read them. Otherwise it warns and goes on."""
    partitions: frozenset[int] | None
    """Partitions that a batch reads; None: all."""
    conversations: frozenset[bytes] | None
    """Conversations whose rows a batch read of messages gives; None: all."""
    state_folder: str | None
    """Folder in which streams keep their state of each partition; None: a folder of this user on each machine."""
    client: Mapping[str, str]
    """Settings for librdkafka."""


def parse(options: Mapping[str, str]) -> ConnectionSettings:
    """Settings from the options of a reader; InvalidSettings or InvalidName names the option and the remedy."""
    if TABLE_PROPERTY in options:
        raise InvalidSettings(
            "CREATE TABLE cannot be used with the format konverse: Spark does not keep the options of a table. Write "
            "CREATE TEMPORARY VIEW … USING konverse OPTIONS (…)"
        )
    known = {name.lower(): name for name in OPTIONS}
    given: dict[str, str] = {}
    client: dict[str, str] = {}
    for option, value in options.items():
        if option.lower().startswith(CLIENT_PREFIX):
            client[client_setting(option)] = value
        elif option.lower() in known:
            given[known[option.lower()]] = value
        else:
            raise InvalidSettings(unknown_option(option, "the format konverse", OPTIONS))
    topic, queue = _topic(given)
    include = _include(given)
    mode = _mode(given)
    for option, modes in CHOICES.items():
        if option in given and mode not in modes:
            raise InvalidSettings(f"option {option!r} does not apply to mode {mode.value!r}; remove it")
    return ConnectionSettings(
        bootstrap=bootstrap_servers(given.get("bootstrap")),
        topic=topic,
        queue=queue,
        database=given.get("database", DEFAULT_DATABASE),
        instance=given.get("instance", DEFAULT_INSTANCE),
        mode=mode,
        tag=_tag(given.get("incarnation")),
        starting=_border("starting", given, "earliest"),
        ending=_border("ending", given, "latest"),
        include_all="all" in include,
        include_groups="groups" in include,
        of_streams=tuple(option for option in _OF_STREAMS if option in given),
        max_rows=_max_rows(given.get("maxRows")),
        fail_on_data_loss=_flag("failOnDataLoss", given.get("failOnDataLoss", "true")),
        partitions=partitions_of(given.get("partitions")),
        conversations=conversations_of(given.get("conversations")),
        state_folder=_folder(given.get("stateFolder")),
        client=client,
    )


def unknown_option(option: str, to: str, known: Sequence[str]) -> str:
    """Error text for an option that `to` does not know. It suggests the most similar option, and lists all."""
    near = get_close_matches(option, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return (
        f"option {quoted(option)} is unknown to {to}; {hint}"
        f"Known are {', '.join(known)}, and {CLIENT_PREFIX}<setting> for the Kafka client"
    )


def client_setting(option: str) -> str:
    """The client setting that an option `kafka.…` names; InvalidSettings when it cannot be changed."""
    setting = option[len(CLIENT_PREFIX) :].lower()
    if not setting.strip():
        raise InvalidSettings(
            f"option {quoted(option)} names no setting; write {CLIENT_PREFIX}<setting>, such as "
            "'kafka.security.protocol', or remove it"
        )
    if setting == "bootstrap.servers":
        raise InvalidSettings(f"option {option!r} is not used by the format konverse; give 'bootstrap' instead")
    if setting in FIXED:
        raise InvalidSettings(
            f"option {option!r} cannot be changed: konverse depends on its own value of it; remove it"
        )
    return setting


def bootstrap_servers(value: str | None) -> str:
    """Brokers in librdkafka's form, `host:port,host:port`; InvalidSettings when there are none."""
    if not value:
        raise InvalidSettings("option 'bootstrap' is missing; give it the Kafka brokers as 'host:port,host:port'")
    servers = []
    for part in value.split(","):
        match = _SERVER.fullmatch(part.strip())
        if match is None or not 0 < int(match[2]) < 1 << 16:
            raise InvalidSettings(
                f"option 'bootstrap' holds {quoted(part.strip())}, which is not an address; write 'host:port' or "
                "'kafka://host:port'"
            )
        servers.append(match[1])
    return ",".join(servers)


def _topic(given: Mapping[str, str]) -> tuple[str, str | None]:
    named = [name for name in ("database", "queue", "instance") if name in given]
    topic = given.get("topic")
    if topic is not None:
        if named:
            raise InvalidSettings(f"options 'topic' and {named[0]!r} exclude each other; give a queue or a topic")
        if not topic:
            raise InvalidSettings("option 'topic' is empty; give the name of a Kafka topic")
        return topic, None
    if "queue" not in given:
        raise InvalidSettings(
            f"option 'queue' is missing; give 'queue' (and its 'database'), or a Kafka 'topic'. {TABLES_HAVE_NONE}"
        )
    names = {
        "instance": given.get("instance", DEFAULT_INSTANCE),
        "database": given.get("database", DEFAULT_DATABASE),
        "queue": given["queue"],
    }
    for kind, name in names.items():
        check_name(kind, name)
    return data_topic(**names), given["queue"]


def _tag(value: str | None) -> bytes | None:
    if value is None:
        return None
    try:
        return incarnation_tag(UUID(value).bytes)
    except ValueError:
        raise InvalidSettings(
            f"option 'incarnation' is {quoted(value)}; give the queue's incarnation as a UUID"
        ) from None


def tag_of(settings: ConnectionSettings, queue: Queue | None) -> bytes | None:
    """First four bytes of the incarnation whose records are read; None: records of any incarnation.

    `queue` is the queue as the catalog has it; None for a bare topic, and for a queue that is in no catalog.
    """
    return incarnation_tag(queue.incarnation) if settings.tag is None and queue is not None else settings.tag


def _include(given: Mapping[str, str]) -> frozenset[str]:
    value = given.get("include", "accepted")
    parts = [part.strip().lower() for part in value.split(",")]
    if not {"accepted", "all", "groups"}.issuperset(parts) or {"accepted", "all"}.issubset(parts):
        raise InvalidSettings(
            f"option 'include' is {quoted(value)}; give 'accepted' or 'all', with or without ',groups' after it"
        )
    if "groups" in parts and _mode(given) is not Mode.MESSAGES:
        raise InvalidSettings("'groups' of option 'include' is for mode 'messages'; remove it for mode 'journal'")
    return frozenset(parts)


_OF_MESSAGES: Final = (
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "include",
    "maxRows",
)
"""Options of reads by offsets, which the modes `conversations` and `returned` do not have."""


_OF_STREAMS: Final = ("maxRows", "failOnDataLoss", "stateFolder")


def _mode(given: Mapping[str, str]) -> Mode:
    value = given.get("mode", Mode.MESSAGES.value).strip().lower()
    if value not in [mode.value for mode in Mode]:
        known = ", ".join(repr(mode.value) for mode in Mode)
        raise InvalidSettings(f"option 'mode' is {quoted(given['mode'])}; the modes are {known}")
    mode = Mode(value)
    if mode in (Mode.CONVERSATIONS, Mode.RETURNED):
        for option in _OF_MESSAGES:
            if option in given:
                raise InvalidSettings(f"option {option!r} chooses among messages; remove it for mode {value!r}")
    if mode is not Mode.MESSAGES and "incarnation" in given:
        raise InvalidSettings(f"option 'incarnation' chooses among messages; remove it for mode {value!r}")
    return mode


def _max_rows(value: str | None) -> int | None:
    if value is None:
        return None
    rows = whole_number(value.strip(), LONG_MAX)
    if not rows:
        raise InvalidSettings(f"option 'maxRows' is {quoted(value)}; give the rows of a micro-batch, 1 to {LONG_MAX}")
    return rows


def _flag(option: str, value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise InvalidSettings(f"option {option!r} is {quoted(value)}; give 'true' or 'false'")
    return value.strip().lower() == "true"


def _folder(value: str | None) -> str | None:
    if value is not None and (not Path(value).is_absolute() or "\0" in value):
        raise InvalidSettings(
            f"option 'stateFolder' is {quoted(value)}; give the absolute path of a folder that every worker may "
            "write to, without NUL characters"
        )
    return value


def _border(which: str, given: Mapping[str, str], default: str) -> Offsets:
    offsets, timestamp = f"{which}Offsets", f"{which}Timestamp"
    if timestamp not in given:
        return _offsets(offsets, given.get(offsets, default))
    if offsets in given:
        raise InvalidSettings(f"options {offsets!r} and {timestamp!r} exclude each other; give one of them")
    time_ms = _time_ms(timestamp, given[timestamp].strip())
    # Negative times have a special meaning in Kafka. No record is older than 1970, so the first one is meant.
    return Offsets("earliest" if time_ms < 0 else Since(time_ms), {})


def _time_ms(option: str, value: str) -> int:
    """Milliseconds since 1970, negative for a time before; InvalidSettings when Kafka does not accept such a time."""
    if value.isdecimal():
        time_ms = whole_number(value, LONG_MAX)
        if time_ms is None:
            raise InvalidSettings(
                f"option {option!r} is {quoted(value)}; give milliseconds since 1970, {LONG_MAX} at the most"
            )
        return time_ms
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise InvalidSettings(
            f"option {option!r} is {quoted(value)}; give milliseconds since 1970, or a time such as "
            "'2026-01-31T12:00:00+00:00'"
        ) from None
    if moment.tzinfo is None:
        raise InvalidSettings(f"option {option!r} is {quoted(value)}, a time without a zone; add one, such as '+00:00'")
    return round(moment.timestamp() * 1000)


def _offsets(option: str, value: str) -> Offsets:
    default: Position = "earliest" if option == "startingOffsets" else "latest"
    text = value.strip()
    if text.lower() in ("earliest", "latest"):
        return Offsets(_position(option, text), {})
    try:
        named = json.loads(text, object_pairs_hook=tuple)
    except (ValueError, RecursionError):  # the latter for thousands of brackets
        named = None
    if not isinstance(named, tuple):
        raise InvalidSettings(_no_offsets(option, value))
    partitions: dict[int, Position] = {}
    for name, position in named:
        partition = whole_number(name.strip(), PARTITION_MAX)
        if partition is None:
            raise InvalidSettings(_no_offsets(option, value))
        if partition in partitions:
            raise InvalidSettings(
                f"option {option!r} is {quoted(value)}, which names partition {partition} twice; give one offset for it"
            )
        partitions[partition] = _position(option, position)
    return Offsets(default, partitions)


def _no_offsets(option: str, value: str) -> str:
    return (
        f"option {option!r} is {quoted(value)}; give 'earliest', 'latest' or offsets per partition such as "
        '\'{"0": 1200, "1": "latest"}\''
    )


def _position(option: str, value: object) -> Position:
    if isinstance(value, str) and value.lower() in ("earliest", "latest"):
        return "earliest" if value.lower() == "earliest" else "latest"
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LONG_MAX:
        return value
    raise InvalidSettings(
        f"option {option!r} holds {quoted(value)}; an offset is 0 or more, up to {LONG_MAX}, 'earliest' or 'latest'"
    )
