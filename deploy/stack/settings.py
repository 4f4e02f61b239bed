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
    """The shape of a stack. Where no port is given, a free one is chosen."""

    name: str = DEFAULT_NAME
    directory: Path | None = None
    """Where the stack keeps its files. None: in the user's state folder, or a temporary one for an ephemeral stack."""

    brokers: int = 1
    """1, or 3 for a cluster that replicates and survives the death of one broker; 0 runs Redis alone."""

    redis: bool = True
    kafka_port: int | None = None
    """Port of the first broker; further brokers take the next ports."""

    redis_port: int | None = None
    redis_aof: bool = False
    """Let Redis keep its data after a kill (append-only file, everysec). Otherwise it starts empty each time."""

    broker_settings: Mapping[str, str] = field(default_factory=dict)
    """Further lines of server.properties; they override the stack's own."""

    start_deadline_s: float = 90.0
    """Time for the servers of one start to answer."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidName(
                f"{self.name!r} cannot name a stack. Use up to 64 letters, digits, dots, dashes and underscores."
            )
        if self.brokers not in BROKER_COUNTS:
            raise InvalidSettings(f"A stack has 1 or 3 brokers (0: Redis alone), not {self.brokers}.")
        if not self.brokers and not self.redis:
            raise InvalidSettings("A stack without brokers and without Redis is empty. Choose at least one.")

        if self.redis and self.kafka_port is not None and self.redis_port is not None:
            beside = self.redis_port - self.kafka_port
            if 0 <= beside < self.brokers:
                raise InvalidSettings(f"Kafka and Redis cannot both have port {self.redis_port}. Give each its own.")

    def refuse_other_ports(self, kafka_port: int | None, redis_port: int | None) -> None:
        """Raise `InvalidSettings` if a port was asked for that differs from the stack's."""
        asked = (
            ("Kafka", "--kafka-port", self.kafka_port, kafka_port),
            ("Redis", "--redis-port", self.redis_port, redis_port),
        )
        for what, option, wanted, has in asked:
            if wanted is not None and wanted != has:
                place = f"{what} on port {has}" if has else f"no {what}"
                raise InvalidSettings(
                    f"The stack {self.name!r} is there already and has {place}, not {wanted}; a stack keeps its ports. "
                    f"Leave {option} out, or end the stack first with: konverse stack down"
                )

    def home(self) -> StackHome:
        """Return the folder of a lasting stack with these settings."""
        folder = self.directory.absolute() if self.directory else stack_folder(self.name)
        return StackHome(folder)
