"""The settings of a local stack."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from konverse.deploy.host.folders import StackHome, stack_folder
from konverse.schemas.errors import InvalidName, InvalidSettings

DEFAULT_NAME: Final = "default"
BROKER_COUNTS: Final = (0, 1, 3)
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class StackSettings:
    """The shape of a stack.

    Where a field is None, a new stack gets the default, and an existing one stays as it is.
    """

    name: str = DEFAULT_NAME
    directory: Path | None = None
    """Where the stack keeps its files. None: in the user's state folder, or a temporary one for an ephemeral stack."""

    brokers: int | None = None
    """1, or 3 for a cluster that replicates and survives the death of one broker; 0 runs Redis alone. Default: 1."""

    redis: bool | None = None
    """Whether the stack has a Redis. Default: yes."""

    kafka_port: int | None = None
    """Port of the first broker; further brokers take the next ports. Default: free ports."""

    redis_port: int | None = None
    """Default: a free port."""

    redis_aof: bool | None = None
    """Let Redis keep its data after a kill (append-only file, everysec). Default: no, it starts empty each time."""

    broker_settings: Mapping[str, str] = field(default_factory=dict)
    """Further lines of server.properties, which override the stack's own. An existing stack must have the same."""

    start_deadline_s: float = 90.0
    """Time for the servers of one start to answer."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidName(
                f"{self.name!r} cannot name a stack. Use up to 64 letters, digits, dots, dashes and underscores."
            )
        if self.brokers_or_default not in BROKER_COUNTS:
            raise InvalidSettings(f"A stack has 1 or 3 brokers (0: Redis alone), not {self.brokers}.")
        if self.brokers == 0 and self.redis is False:
            raise InvalidSettings("A stack without brokers and without Redis is empty. Choose at least one.")

        if self.redis is not False and self.kafka_port is not None and self.redis_port is not None:
            beside = self.redis_port - self.kafka_port
            if 0 <= beside < self.brokers_or_default:
                raise InvalidSettings(f"Kafka and Redis cannot both have port {self.redis_port}. Give each its own.")

    @property
    def brokers_or_default(self) -> int:
        """The number of brokers of a new stack."""
        return 1 if self.brokers is None else self.brokers

    def home(self) -> StackHome:
        """Return the folder of a lasting stack with these settings."""
        folder = self.directory.absolute() if self.directory else stack_folder(self.name)
        return StackHome(folder)
