"""Settings: arguments of `connect`, then environment variables `KONVERSE_…`, then one TOML file, then defaults.

Also the options of readers and pools, whose values are checked the same way.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Any, Final, Literal, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import InvalidSettings
from konverse.schemas.identifiers import check_name
from konverse.schemas.limits import POOL_KEY_ENTRIES_MAX, POOL_SLACK_MS, POOL_SLACK_MS_MIN
from konverse.schemas.timeouts import milliseconds

from .arguments import did_you_mean
from .redis_urls import check_options, masked

log: Final = logging.getLogger("konverse.settings")

PREFIX: Final = "KONVERSE_"
FILE: Final = "konverse.toml"


OWN_PROPERTIES: Final = frozenset({
    "acks", "auto.offset.reset", "bootstrap.servers", "delivery.report.only.error", "enable.auto.commit",
    "enable.auto.offset.store", "enable.idempotence", "enable.partition.eof", "group.id", "group.protocol",
    "isolation.level", "message.timeout.ms", "request.required.acks", "transactional.id",
})  # fmt: skip
"""Properties of librdkafka on which a guarantee depends: users must not set them."""


SECRET: Final = re.compile(r"pass|secret|oauthbearer\.config|jaas|kinit\.cmd|\.pem$|token", re.IGNORECASE)
"""Names of properties whose values are never shown."""


ENCODED: Final = "write / as %2F, # as %23, ? as %3F, @ as %40, : as %3A, [ as %5B, ] as %5D and % as %25"
"""How to write a reserved character of a user or password in a URL; part of error texts."""
UNREADABLE: Final = f"needs a host, and a port from 0 to 65535; in a user or password {ENCODED}"
URLS: Final = frozenset({"kafka", "redis"})

DEFAULT_DATABASE: Final = "default"

TIMEOUT_S_MAX: Final = 2_147_483
"""Longest timeout: librdkafka counts milliseconds in 32 bits."""
REPLICAS_MAX: Final = 10_000
"""Greatest replication factor that librdkafka sends to Kafka."""


class Settings(BaseSettings):
    """Addresses of the servers, and timeouts. The settings file is `konverse.toml` in the working folder."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, toml_file=FILE)

    kafka: str = "kafka://localhost:9092"
    """`kafka://host:port,host:port`."""
    redis: str | None = None
    """`redis://host:port/db`; None: no view is written."""
    database: str = DEFAULT_DATABASE
    """The database in which names are looked up, as in SQL Server."""
    instance: str = "konverse"
    """First part of every topic name: systems with different instances can share a Kafka cluster."""
    replication_factor: int = Field(default=-1, ge=-1, le=REPLICAS_MAX)
    """Replication factor of topics that konverse creates; -1: the default of the Kafka broker."""
    connect_timeout_s: float = Field(default=10.0, gt=0, le=TIMEOUT_S_MAX, allow_inf_nan=False)
    """How long `connect` waits for Kafka."""
    append_timeout_s: float = Field(default=15.0, gt=0, le=TIMEOUT_S_MAX, allow_inf_nan=False)
    """Time without an answer after which the outcome of an append to a journal is unknown."""
    send_timeout_s: float = Field(default=60.0, gt=0, le=TIMEOUT_S_MAX, allow_inf_nan=False)
    """How long `send` waits for room before QueueFull, and `flush` for acknowledgements before OutcomeUnknown."""
    silence_timeout_s: float = Field(default=600.0, ge=1, allow_inf_nan=False)
    """A partition whose journal got no record for this long has lost its owner, whatever the consumer group says, and
    a reader claims it. Set the same value in all processes: more than any handler of a one-thread reader takes."""
    group_protocol: Literal["consumer", "classic"] = "consumer"
    """`consumer` is KIP-848 (Kafka 4.0 and newer), `classic` works everywhere."""
    transmit: bool = True
    """A process that sends client transactions also delivers them. False: run `konverse transmit` to deliver them."""
    client: dict[str, str] = Field(default_factory=dict)
    """Further librdkafka properties for every client (security.protocol, sasl.* …)."""

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{name}={_shown(name, value)}' for name, value in self)})"

    __str__ = __repr__

    @field_validator("kafka")
    @classmethod
    def _kafka_url(cls, value: str) -> str:
        if "@" in value:
            raise ValueError(
                "must look like kafka://host:port, without a user or password; give these in `client`, as "
                "sasl.username and sasl.password"
            )
        parts = _parts(value)
        if parts.scheme != "kafka" or not parts.netloc:
            raise ValueError("must look like kafka://host:port")
        for broker in parts.netloc.split(","):
            one = _parts(f"kafka://{broker}")
            if not one.hostname or _port(one) == 0:
                raise ValueError("must name a host and a port of each broker, like kafka://host:port,host:port")
        return value

    @field_validator("replication_factor")
    @classmethod
    def _replicas(cls, value: int) -> int:
        if value == 0:
            raise ValueError("must be 1 or more, or -1 for the default of the Kafka broker")
        return value

    @field_validator("client")
    @classmethod
    def _client_properties(cls, value: dict[str, str]) -> dict[str, str]:
        own = OWN_PROPERTIES.intersection(value)
        if own:
            raise ValueError(f"must leave out {min(own)}, which konverse sets because its guarantees depend on it")
        for text in (*value, *value.values()):
            _check_text(text)
        return value

    @field_validator("redis")
    @classmethod
    def _redis_url(cls, value: str | None) -> str | None:
        if value:
            parts = _parts(value)
            if parts.scheme not in {"redis", "rediss", "unix"}:
                raise ValueError("must look like redis://host:port")
            if "@" in parts.path + parts.query + parts.fragment or parts.netloc.count("@") > 1:
                raise ValueError(f"has a user or password with a character that is reserved in URLs; {ENCODED}")
            if parts.scheme != "unix" and not (parts.path.strip("/") or "0").isdecimal():
                raise ValueError("must end in the number of a Redis database, like redis://host:port/0")
            _port(parts)
            _check_host(parts.hostname or "")
            check_options(value)
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  # pydantic sets the signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments win over the environment, the environment over the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @classmethod
    def load(cls, **given: Any) -> Self:
        """Settings from all sources; a given None counts as not given. InvalidSettings names the wrong setting."""
        _warn_of_misspelt()
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            first = error.errors()[0]
            setting = str(first["loc"][0])
            name = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden":
                like = did_you_mean(name, cls.model_fields)
                raise InvalidSettings(f"there is no setting {name!r}{like} (arguments and konverse.toml)") from None
            said = first["ctx"]["error"] if first["type"] == "value_error" else first["msg"]
            raise InvalidSettings(
                f"setting {name!r} (environment {PREFIX}{setting.upper()}, or {FILE}): "
                f"{said}, not {_shown(name, first['input'])}"
            ) from None
        except (TOMLDecodeError, OSError) as error:
            raise InvalidSettings(f"{Path(FILE).absolute()} cannot be read: {error}") from None
        except (SettingsError, ValueError) as error:  # pydantic's own error, and those of json and the codecs
            raise InvalidSettings(f"the environment or {FILE} cannot be read: {error}") from None

    @property
    def encrypted(self) -> bool:
        """Whether connections to Kafka use TLS."""
        return self.client.get("security.protocol", "").lower() in {"ssl", "sasl_ssl"}

    @property
    def bootstrap(self) -> str:
        """Broker addresses in the form that librdkafka takes."""
        return urlsplit(self.kafka).netloc


def _shown(name: str, value: object) -> str:
    """The text of a value for an error or a representation, with secrets masked."""
    if SECRET.search(name):
        return "'***'"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_shown(str(key), each)}" for key, each in value.items()) + "}"
    if name in URLS and isinstance(value, str):
        return repr(masked(value))
    if name == "client" or not isinstance(value, str | int | float | None):
        return f"a value of the type {type(value).__name__}"
    return repr(masked(value) if isinstance(value, str) and "://" in value else value)


def _parts(url: str) -> SplitResult:
    """The parts of a URL. urllib's own error is replaced, because its text may contain a password."""
    _check_text(url)
    try:
        return urlsplit(url)
    except ValueError:
        raise ValueError(UNREADABLE) from None


def _check_text(text: str) -> None:
    """Refuse a text that no client can encode, such as that of an environment variable that is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("has a character that is not UTF-8") from None


def _check_host(name: str) -> None:
    try:
        name.encode("idna")
    except UnicodeError:
        raise ValueError("has a host name with an empty part, or with one of more than 63 characters") from None


def _port(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        raise ValueError(UNREADABLE) from None


def _warn_of_misspelt() -> None:
    """Warn of environment variables whose names resemble one of konverse's but are not read."""
    known = {f"{PREFIX}{name.upper()}" for name in Settings.model_fields}
    for variable in os.environ:
        if variable.startswith(PREFIX) and variable not in known:
            like = get_close_matches(variable, known, n=1, cutoff=0.85)
            if like:
                log.warning("the environment variable %s is not read; did you mean %s?", variable, like[0])


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """Arguments of `broker.reader`."""

    batch: int = 100
    """Conversation groups that share one commit, at most."""
    max_messages: int | None = None
    """Messages of a conversation in one transaction, at most (TOP n)."""
    timeout: float | None = None
    """Iteration ends after this many seconds without a message; None waits for ever (behaviours 69, 70)."""
    partitions: tuple[int, ...] | None = None
    """Read exactly these partitions, instead of the share that the consumer group suggests."""
    standby: bool = False
    """Follow the other partitions too, so that this reader can take one over at once."""
    substitute: bool = False
    """Own only partitions without an owner, deliver nothing, give way to any reader (`bridge.reader.substitutes`)."""

    def check(self, queue: Queue) -> None:
        """Raise InvalidSettings for a value that is out of range, or a partition that the queue does not have."""
        if self.batch < 1:
            raise InvalidSettings(f"batch is {self.batch}; give 1 or more conversation groups for a commit")
        if self.timeout is not None and self.timeout < 0:
            raise InvalidSettings(f"timeout is {self.timeout} s; leave it out to wait for ever, or give 0 or more")
        _check_max_messages(self.max_messages)
        if self.partitions is not None and not 0 < len(set(self.partitions)) == len(self.partitions):
            raise InvalidSettings(
                f"partitions are {self.partitions}; name one or more, and name each once, or leave them out for a share"
            )
        for number in self.partitions or ():
            if not 0 <= number < queue.partitions:
                raise InvalidSettings(f"queue {queue.name!r} has partitions 0 to {queue.partitions - 1}, not {number}")


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """Arguments of `broker.pool`: how conversations are shared and recycled."""

    from_service: str
    to_service: str
    contract: str
    name: str | None = None
    """Processes that open this name one after another continue the same conversations; None: private to this one."""
    size: int | None = None
    """Number of conversations, used in turn; None: one for each key, or for each thread where no key is given."""
    max_age: float = 3600.0
    """Seconds after which a conversation is recycled."""
    max_messages: int | None = None
    """Messages after which a conversation is recycled; None: no limit."""
    lifetime: float | None = None
    """Lifetime of each conversation, in seconds; None: unlimited."""
    end_of_stream: str = "EndOfStream"
    """Message type that tells the target that no more messages follow on a conversation."""
    read: bool = True
    """A broker thread reads the queue of `from_service`, to process EndDialog and Error."""

    @property
    def title(self) -> str:
        """The pool in a text: its name, if it has one, and its services."""
        name = "the pool" if self.name is None else f"pool {self.name!r}"
        return f"{name} from {self.from_service!r} to {self.to_service!r}"

    @property
    def timer_s(self) -> float | None:
        """Seconds after which the dialog timer of a conversation fires: after its sender should have recycled it.

        None when the conversation expires before it is recycled.
        """
        due_s = self.max_age + min(max(self.max_age, POOL_SLACK_MS_MIN / 1000), POOL_SLACK_MS / 1000)
        if self.lifetime is None:
            return due_s
        return min(due_s, (self.max_age + self.lifetime) / 2) if self.max_age < self.lifetime else None

    def check(self) -> None:
        """Raise InvalidSettings or InvalidTimeout for a value that is out of range."""
        if self.max_age <= 0:
            raise InvalidSettings(
                f"max_age is {self.max_age:g}; give the seconds after which a conversation is recycled, above 0, or "
                "leave it out for an hour"
            )
        milliseconds(self.timer_s or self.max_age, "max_age of a pool")
        if self.lifetime is not None:
            if self.lifetime <= 0:
                raise InvalidSettings(
                    f"lifetime is {self.lifetime:g}; give the seconds after which each conversation of the pool is "
                    "over, above 0, or leave it out for conversations that never expire"
                )
            milliseconds(self.lifetime, "lifetime of a pool")
        if self.size is not None and not 1 <= self.size <= POOL_KEY_ENTRIES_MAX:
            raise InvalidSettings(f"size is {self.size}; a pool has 1 to {POOL_KEY_ENTRIES_MAX} conversations")
        _check_max_messages(self.max_messages)
        if self.name is not None:
            check_name("pool", self.name)


def _check_max_messages(number: int | None) -> None:
    if number is not None and number < 1:
        raise InvalidSettings(f"max_messages is {number}; leave it out or give at least 1")
