"""Names of artifacts, sets of them, and what a resolver failed on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KAFKA_VERSION: Final = "4.3.1"
"""The newest broker that Maven Central has."""

_LOG4J_VERSION: Final = "2.25.4"
_SPARK_CONNECTOR_VERSION: Final = "4.2.0"
"""The newest that Maven Central has. Spark moves what it uses: 4.0 cannot stream under Spark 4.3, nor log."""

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
    """Artifacts that are resolved together, with all they need at run time, into one folder of the cache."""

    name: str
    """The folder's name."""

    coordinates: tuple[Coordinate, ...]
    main_jars: tuple[str, ...]
    """Files without which the set is not complete; more will be there."""

    excluded_artifacts: tuple[str, ...] = ()
    jars_about: int = 0
    room_bytes: int = 0
    """The room that downloading takes at its height."""


KAFKA: Final = JarSet(
    name=f"kafka-{KAFKA_VERSION}",
    coordinates=(
        Coordinate("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        # Not in Kafka's own list: without it nothing is logged, and so there is no line to wait for.
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
    excluded_artifacts=("scala-library", "slf4j-api", "lz4-java", "snappy-java"),  # Spark has its own
    jars_about=9,
    room_bytes=150 * _MIB,
)
