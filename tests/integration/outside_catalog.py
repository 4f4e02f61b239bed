"""Changes of an instance's catalog from outside, and the errors of each client (docs/outside.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from konverse.schemas.catalog.objects import Queue
from konverse.schemas.errors import DialogNotFound, KonverseError, QueueNotFound, ServiceNotFound
from konverse.schemas.identifiers import catalog_topic
from tests.integration.outside import (
    READ_SERVICE,
    UNREAD,
    Row,
    Scene,
    again,
    cut,
    gone,
    grown,
    setting,
)
from tests.integration.outside_columns import QUIET_S, SEEN_S, living_sender, new_sender, word_for
from tests.kit.oracle import verify
from tests.kit.shop import DEADLINE_S, ORDER, ORDER_SERVICE, ORDERING, SHOP_SERVICE, open_shop, until
from tests.kit.topics import delete

HEADING: Final = "The catalog"


def begun_anew(scene: Scene) -> None:
    """Stop the instance's programs and delete all its topics."""
    scene.broker.close()
    for topic in scene.admin.list_topics(timeout=10).topics:
        if topic.startswith(f"{scene.broker.settings.instance}."):
            delete(scene.admin, topic)


def _changed(name: str, value: str, needed: str) -> Row:
    return Row(UNREAD, setting("catalog", name, value), setting("catalog", name, needed))


HARMS: Final = {
    "deleted": Row(UNREAD, gone("catalog"), begun_anew),
    "made again": Row(UNREAD, again("catalog"), begun_anew),
    "records deleted": Row(UNREAD, cut("catalog", 3), begun_anew),
    "partitions added": Row(UNREAD, grown("catalog")),
    "`retention.ms` set": _changed("retention.ms", "86400000", "-1"),
    "`retention.bytes` set": _changed("retention.bytes", "100000000", "-1"),
    "compacted": _changed("cleanup.policy", "compact", "delete"),
    "`max.message.bytes` lowered": _changed("max.message.bytes", "50", "1000000"),
    "`min.insync.replicas` raised": _changed("min.insync.replicas", "2", "1"),
    "`message.timestamp.type` changed": _changed("message.timestamp.type", "CreateTime", "LogAppendTime"),
}
"""Row of the page → the change."""


def _topics(scene: Scene) -> list[str]:
    return [catalog_topic(scene.broker.settings.instance)]


def _said(scene: Scene, call: Callable[[], object]) -> str:
    try:
        call()
    except (QueueNotFound, ServiceNotFound, DialogNotFound):
        return "finds none"
    except KonverseError as error:
        return word_for(error, [*_topics(scene), *scene.topics])
    return "goes on"


def administrator(scene: Scene) -> str:
    def call() -> None:
        scene.broker.admin.create_queue("More")
        scene.broker.admin.alter_queue("More", status=False)
        scene.broker.admin.drop_queue("More", force=True)

    return _said(scene, call)


def new_administrator(scene: Scene) -> str:
    """A program that creates its objects whenever it starts."""

    def call() -> None:
        with scene.another() as another:
            another.admin.create_queue("Orders", keep=None, if_not_exists=True)

    return _said(scene, call)


def newly_sending(scene: Scene) -> str:
    try:
        return new_sender(scene, _topics(scene))
    except ServiceNotFound:
        return "finds none"


def running_reader(scene: Scene) -> str:
    """A message to a running reader, from a sender that was there before."""
    dialog = scene.broker.begin_dialog(SHOP_SERVICE, READ_SERVICE, ORDERING)
    dialog.send(ORDER, b"to a reader that runs")
    dialog.flush()
    until(lambda: scene.ended or b"to a reader that runs" in scene.read, "it has ended, or received something")
    scene.running.join(SEEN_S)
    return word_for(scene.ended[0], _topics(scene)) if scene.ended else "goes on"


def next_reader(scene: Scene) -> str:
    def call() -> None:
        with scene.another() as another, another.reader("Orders", timeout=QUIET_S) as reader:
            for transaction in reader:
                with transaction:
                    scene.received += [message.body for message in transaction if message.type == ORDER]

    return _said(scene, call)


def verifies(scene: Scene) -> str:
    findings: list[object] = []

    def call() -> None:
        with scene.another() as another:
            queues = another.catalog.all(Queue)
            if not queues:
                raise QueueNotFound
            findings.extend(verify(scene.servers.bootstrap, queues))

    word = _said(scene, call)
    return {"goes on": "refutes" if findings else "holds"}.get(word, word)


def why(scene: Scene) -> str:
    found: list[object] = []

    def call() -> None:
        with scene.another() as another:
            found.extend(side for sides in another.why(scene.waiting.id) for side in sides)

    word = _said(scene, call)
    assert found or word != "goes on"
    return {"goes on": "says"}.get(word, word)


def views(scene: Scene) -> str:
    found: list[object] = []

    def call() -> None:
        with scene.another() as another:
            found.extend(another.views.conversation_endpoints())

    word = _said(scene, call)
    return {"goes on": "says" if found else "finds none"}.get(word, word)


def way_on(scene: Scene, row: Row) -> str:
    """An administrator follows the errors; then programs create their objects, send and receive."""
    if row.mend is not None:
        row.mend(scene)
    kept = row.mend is not begun_anew
    with scene.another() as another:
        if not kept:
            open_shop(another)
        dialog = another.begin_dialog(SHOP_SERVICE, ORDER_SERVICE, ORDERING)
        dialog.send(ORDER, b"behind it")
        dialog.flush()
    wanted = {b"behind it", *(scene.acknowledged if kept else ())}
    with scene.another() as another, another.reader("Orders", timeout=DEADLINE_S) as reader:
        for transaction in reader:
            with transaction:
                scene.received += [message.body for message in transaction]
            if wanted <= {*scene.received, *scene.read}:
                return "goes on"
    raise AssertionError(f"{wanted - {*scene.received, *scene.read}} is not received")


PROBES: Final[dict[str, Callable[[Scene], str]]] = {
    "administrator": administrator,
    "new administrator": new_administrator,
    "living sender": living_sender,
    "new sender": newly_sending,
    "running reader": running_reader,
    "next reader": next_reader,
    "verify": verifies,
    "why": why,
    "views": views,
}
"""Column of the page → the attempt, in order."""
