"""Artifacts, and the sets of them that are downloaded together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KAFKA_VERSION: Final = "4.3.1"
"""The newest version on Maven Central."""

_LOG4J_VERSION: Final = "2.25.4"
_SPARK_CONNECTOR_VERSION: Final = "4.2.0"
"""The newest on Maven Central.

Spark moves classes that the connector uses: version 4.0 can neither stream nor log under Spark 4.3.
"""

_MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class Coordinate:
    """An artifact as Maven names it."""

    group: str
    artifact: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


@dataclass(frozen=True)
class JarSet:
    """Artifacts that are resolved together, with all their runtime dependencies, into one folder of the cache."""

    name: str
    """The folder's name."""

    coordinates: tuple[Coordinate, ...]
    main_jars: tuple[str, ...]
    """Files without which the set is incomplete; the folder has more."""

    excluded_artifacts: tuple[str, ...] = ()
    jars_about: int = 0
    room_bytes: int = 0
    """Maximum disk space that the download needs at a time."""


KAFKA: Final = JarSet(
    name=f"kafka-{KAFKA_VERSION}",
    coordinates=(
        Coordinate("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        # Not among Kafka's dependencies. Without it nothing is logged, and there is no line to wait for.
        Coordinate("org.apache.logging.log4j", "log4j-slf4j-impl", _LOG4J_VERSION),
    ),
    main_jars=(
        f"kafka_2.13-{KAFKA_VERSION}.jar",
        f"kafka-clients-{KAFKA_VERSION}.jar",
        f"kafka-group-coordinator-{KAFKA_VERSION}.jar",
        f"kafka-metadata-{KAFKA_VERSION}.jar",
        f"kafka-raft-{KAFKA_VERSION}.jar",
        f"kafka-server-{KAFKA_VERSION}.jar",
        f"kafka-storage-{KAFKA_VERSION}.jar",
        f"kafka-transaction-coordinator-{KAFKA_VERSION}.jar",
        f"log4j-core-{_LOG4J_VERSION}.jar",
        f"log4j-slf4j-impl-{_LOG4J_VERSION}.jar",
    ),
    jars_about=46,
    room_bytes=120 * _MIB,
)

SPARK_CONNECTOR: Final = JarSet(
    name=f"spark-sql-kafka-{_SPARK_CONNECTOR_VERSION}",
    coordinates=(Coordinate("org.apache.spark", "spark-sql-kafka-0-10_2.13", _SPARK_CONNECTOR_VERSION),),
    main_jars=(
        f"spark-sql-kafka-0-10_2.13-{_SPARK_CONNECTOR_VERSION}.jar",
        f"spark-token-provider-kafka-0-10_2.13-{_SPARK_CONNECTOR_VERSION}.jar",
        "kafka-clients-3.9.2.jar",
        "commons-pool2-2.13.1.jar",
    ),
    excluded_artifacts=("scala-library", "slf4j-api", "lz4-java", "snappy-java"),  # Spark brings its own
    jars_about=9,
    room_bytes=150 * _MIB,
)
