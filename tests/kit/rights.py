"""The Kafka rights that the tests grant: those of `konverse.bridge.admin.rights`, for the queues of the tests."""

from __future__ import annotations

from typing import Final

from confluent_kafka.admin import AclOperation

from konverse.bridge.admin.rights import Grant, ProcessRights, Right, logs_of, on_topic

READ, WRITE, SETTINGS = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS
CREATE, DELETE, DESCRIBE = AclOperation.CREATE, AclOperation.DELETE, AclOperation.DESCRIBE

ORDERS, SHOP, NORTH = "konverse.sales.Orders", "konverse.sales.Shop", "konverse.sales.North"
NEW: Final = "konverse.sales.New"
"""A queue that the administrator creates and drops."""
LOST: Final = "konverse.sales.Lost"
"""A queue from which records were deleted before they were received."""
CATALOG, OPEN, INSTRUCTIONS = "konverse.catalog", "konverse.open", "konverse.instructions"
TRANSMISSION, SUCCESSIONS = "konverse.transmission", "konverse.successions"


logs: Final = logs_of


def grants(kind: str, *queues: str, to: tuple[str, ...] = ()) -> list[Grant]:
    """The grants of a kind of process for queues of database `sales`."""
    return ProcessRights("konverse", "sales", queues, to).of(kind)


def needed(kind: str, *queues: str, to: tuple[str, ...] = ()) -> list[Right]:
    """The rights without which a kind of process does not work."""
    return grants(kind, *queues, to=to)[0].rights


def with_purpose(words: str, kind: str, *queues: str, to: tuple[str, ...] = ()) -> list[Right]:
    """The rights of a kind of process, and those of the further grant whose purpose contains `words`."""
    first, *others = grants(kind, *queues, to=to)
    (other,) = [grant for grant in others if words in grant.purpose]
    return [*first.rights, *other.rights]


KNOWS: Final = on_topic(CATALOG, READ, SETTINGS)
DATES: Final = on_topic(OPEN, WRITE)
"""Rights of a process that asks for Kafka's time."""

RIGHTS: Final[dict[str, list[Right]]] = {
    "sender": needed("sender", "Shop", to=("Orders",)),
    "client": needed("client", "Shop", to=("Orders",)),
    "transmitter": needed("transmitter", "Shop", to=("Orders",)),
    "worker": needed("reader", "Orders", to=("Shop",)),
    "router": needed("router", "Orders", to=("Shop", "North")),
    "pool": needed("pool", "Shop", to=("Orders",)),
    "named": needed("pool", "Shop", to=("Orders",)),
    "unread": needed("unread-pool", "Shop", to=("Orders",)),
    "operator": needed("operator", "Orders", "Shop", "North"),
    "auditor": needed("auditor", "Orders", "Shop", "North"),
    "onlooker": needed("onlooker", "Orders", "Shop", "North"),
    "administrator": needed("administrator", "New"),
}

RENEWS: Final = with_purpose("new id", "sender", "Shop", to=("Orders",))
"""Rights of a sender that takes a new id while a message to `Orders` is unacknowledged."""

FOLLOWS_HOME: Final = with_purpose("bounced", "sender", "Shop", to=("Orders",))
"""Rights of a sender that asks for bounced messages while another process reads the queue of its service."""

ASKS: Final = with_purpose("outcome", "sender", "Shop", to=("Orders",))
"""Rights of a process that asks for the outcome of messages to `Orders`."""

ADMINISTERS_ROUTES: Final = with_purpose("route", "administrator", "New")
"""Rights of an administrator who gives routes a lifetime."""

DELETES: Final = grants("reader", "Orders")[1].rights
"""Additional rights of a reader that deletes old records."""

OF_LOSS: Final = needed("loss", "Lost", "Orders", "Shop", "North", to=("Shop",))
"""Rights of `konverse accept-loss` for queue `Lost`."""

OF_SPARK: Final[dict[str, list[Right]]] = {
    "spark_read": needed("spark-read", "Orders"),
    "spark_read_journal": [*KNOWS, *grants("spark-read", "Orders")[2].rights],
    "spark_conversations": [*KNOWS, *grants("spark-read", "Orders")[3].rights],
    "spark_stream": with_purpose("readStream", "spark-read", "Orders"),
    "spark_write": needed("spark-write", "Shop", to=("Orders",)),
    "spark_write_pool": with_purpose("pool", "spark-write", "Shop", to=("Orders",)),
    "spark_write_stream": with_purpose("stream", "spark-write", "Shop", to=("Orders",)),
    "spark_process": needed("spark-process", "Orders", to=("Shop",)),
    "spark_map_arrow": needed("spark-process", "Orders", to=("Shop",)),
    "spark_route": needed("spark-route", "Orders", to=("Shop", "North")),
    "spark_route_arrow": with_purpose("progress", "spark-route", "Orders", to=("Shop", "North")),
}
"""The driver and the executors authenticate as the same user, that of the options."""


def reads(*topics: str) -> list[Right]:
    """Rights to read all logs of these queues without changing them."""
    return [right for topic in topics for log in logs(topic) for right in on_topic(log, READ)]
