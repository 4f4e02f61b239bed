"""The Kafka rights of each kind of process, as docs/operating.md lists them."""

from __future__ import annotations

from typing import Final

from confluent_kafka.admin import AclOperation

from tests.kit.guarded import ANY, GROUP, Right, on_topic

READ, WRITE, SETTINGS = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS
CREATE, DELETE, DESCRIBE = AclOperation.CREATE, AclOperation.DELETE, AclOperation.DESCRIBE

ORDERS, SHOP, NORTH = "konverse.sales.Orders", "konverse.sales.Shop", "konverse.sales.North"
NEW: Final = "konverse.sales.New"
"""A queue that the administrator creates and drops."""
CATALOG, OPEN, INSTRUCTIONS = "konverse.catalog", "konverse.open", "konverse.instructions"
TRANSMISSION, SUCCESSIONS = "konverse.transmission", "konverse.successions"


def logs(queue: str) -> tuple[str, str, str]:
    """Data topic, journal and snapshot topic of a queue."""
    return queue, f"{queue}.queue.journal", f"{queue}.queue.snapshot"


def reads(*queues: str) -> list[Right]:
    """Rights to read all logs of these queues without changing them."""
    return [right for queue in queues for log in logs(queue) for right in on_topic(log, READ)]


def owns(queue: str) -> list[Right]:
    """Rights to a queue that its readers need."""
    written = [right for log in logs(queue)[1:] for right in on_topic(log, READ, WRITE, SETTINGS)]
    return [*on_topic(queue, READ, SETTINGS), *written, (GROUP, f"{queue}.queue", READ)]


KNOWS: Final = on_topic(CATALOG, READ, SETTINGS)
DATES: Final = on_topic(OPEN, WRITE)
"""Rights of a process that asks for Kafka's time."""

SENDS: Final = [*KNOWS, *DATES, *on_topic(ORDERS, WRITE), *on_topic(SHOP, WRITE)]

RIGHTS: Final[dict[str, list[Right]]] = {
    "sender": SENDS,
    "client": [*SENDS, *on_topic(TRANSMISSION, WRITE), *owns(TRANSMISSION)],
    "transmitter": [*SENDS, *on_topic(INSTRUCTIONS, READ), *owns(TRANSMISSION)],
    "worker": [*KNOWS, *DATES, *on_topic(INSTRUCTIONS, READ), *owns(ORDERS), *on_topic(SHOP, WRITE)],
    "router": [
        *KNOWS, *DATES, *on_topic(INSTRUCTIONS, READ), *owns(ORDERS), *on_topic(SHOP, WRITE), *on_topic(NORTH, WRITE)
    ],
    "pool": [*SENDS, *on_topic(INSTRUCTIONS, READ), *owns(SHOP)],
    "named": [*SENDS, *on_topic(INSTRUCTIONS, READ), *owns(SHOP)],
    "unread": [*SENDS, *reads(SHOP)],
    "operator": [*KNOWS, *DATES, *on_topic(INSTRUCTIONS, READ, WRITE), *reads(ORDERS, SHOP, NORTH)],
    "auditor": [*KNOWS, *reads(ORDERS, SHOP, NORTH)],
    "onlooker": [*KNOWS, *DATES, *reads(ORDERS, SHOP, NORTH)],
    "administrator": [
        *on_topic(CATALOG, READ, WRITE, SETTINGS),
        *on_topic(OPEN, DESCRIBE),
        *[right for log in logs(NEW) for right in on_topic(log, CREATE, DELETE, READ)],
    ],
}  # fmt: skip

RENEWS: Final = [*SENDS, *reads(ORDERS)]
"""Rights of a sender that takes a new id while a message to `Orders` is unacknowledged."""

FOLLOWS_HOME: Final = [*SENDS, *reads(SHOP)]
"""Rights of a sender that asks for bounced messages while another process reads the queue of its service."""

ASKS: Final = [*SENDS, *reads(ORDERS)]
"""Rights of a process that asks for the outcome of messages to `Orders`."""

ADMINISTERS_ROUTES: Final = [*RIGHTS["administrator"], *DATES]
"""Rights of an administrator who gives routes a lifetime."""

DELETES: Final = [
    *[right for log in logs(ORDERS) for right in on_topic(log, DELETE)],
    (GROUP, f"{ORDERS}.queue.{ANY}", DESCRIBE),
]
"""Rights of a reader, beside the others, with which it deletes old records."""

LOST: Final = "konverse.sales.Lost"
"""A queue from which records were deleted before they were received."""

OF_LOSS: Final = [
    *KNOWS,
    *DATES,
    *reads(ORDERS, SHOP, NORTH),
    *[right for right in owns(LOST) if right[0] is not GROUP],
    *on_topic(INSTRUCTIONS, READ, WRITE),
    *on_topic(SHOP, WRITE),
]
"""Rights of `konverse accept-loss` for that queue."""

PROGRESS: Final = f"{ORDERS}.queue-progress-{ANY}"
"""The groups in which tasks of `route_arrow` report their counts."""

WRITES: Final = [
    *KNOWS,
    *DATES,
    *on_topic(ORDERS, WRITE),
    *on_topic(SHOP, WRITE),
    *on_topic(TRANSMISSION, WRITE),
    *reads(TRANSMISSION),
    *[right for log in logs(TRANSMISSION) for right in on_topic(log, SETTINGS)],
]

OF_SPARK: Final[dict[str, list[Right]]] = {
    "spark_read": [*KNOWS, *on_topic(ORDERS, READ)],
    "spark_read_journal": [*KNOWS, *on_topic(f"{ORDERS}.queue.journal", READ)],
    "spark_conversations": [*KNOWS, *DATES, *reads(ORDERS)],
    "spark_stream": [*KNOWS, *on_topic(ORDERS, READ), (GROUP, f"{ORDERS}.queue.spark-{ANY}", READ)],
    "spark_write": WRITES,
    "spark_write_pool": [*WRITES, *on_topic(SHOP, READ), *on_topic(SUCCESSIONS, READ, WRITE)],
    "spark_write_stream": [*WRITES, *on_topic(SHOP, READ), *on_topic(SUCCESSIONS, READ, WRITE)],
    "spark_process": RIGHTS["worker"],
    "spark_map_arrow": RIGHTS["worker"],
    "spark_route": RIGHTS["router"],
    "spark_route_arrow": [*RIGHTS["router"], (GROUP, PROGRESS, READ), (GROUP, PROGRESS, DELETE)],
}
"""The driver and the executors authenticate as the same user, that of the options."""
