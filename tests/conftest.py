"""Fixtures for tests that need real servers. tests/kit/servers.py chooses the servers."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from hypothesis import HealthCheck, Phase, is_hypothesis_test, settings
from hypothesis.configuration import set_hypothesis_home_dir

from konverse.bridge.runtime.collector import prepare_collector
from konverse.deploy import LocalStack, StackSettings
from konverse.schemas.errors import StackError
from konverse.schemas.identifiers import escape
from tests.chaos.rig import Rig, rig
from tests.kit.cpu_report import pytest_runtest_makereport, pytest_runtest_setup, pytest_terminal_summary
from tests.kit.servers import Servers, missing, needs_local_servers, prepare, provide, revive

# How much hypothesis tries: the same examples in every run of CI, other ones each time at home. An example may take as
# long as it takes: a busy machine makes none of them a failure.
set_hypothesis_home_dir(Path(__file__).resolve().parents[1] / ".cache" / "hypothesis")
_COMMON: Final = settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", _COMMON, derandomize=True, database=None)
settings.register_profile("home", _COMMON)
settings.load_profile("ci" if os.environ.get("CI") else "home")

__all__ = ["pytest_runtest_makereport", "pytest_runtest_setup", "pytest_terminal_summary"]

NewStack = Callable[[StackSettings], LocalStack]

_NEEDING_SERVERS = {"servers", "local_servers", "own_stack", "proxied", "new_stack"}
_DISTURBING = {"own_stack", "proxied"}
_AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
DISTURBED: Final = "own Kafka"
"""The group of tests that disturb servers. One worker runs them, one after the other, on one stack."""

ID_LENGTH_MAX = 60
"""Characters of a parameter that the name of a test shows."""

PROOF_S = 4 * 3_600
"""Timeout of one property with all its examples."""

SMALL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Spark sessions that live minutes and handle few rows: needs a third less CPU."""


def pytest_configure() -> None:
    """Let Ctrl-C reach the processes of the tests even when the test run's parent ignores it, as with nohup and `&`.

    Also give every Spark of the tests a small JVM.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SMALL_JAVA)


def pytest_make_parametrize_id(val: object) -> str | None:
    """Shorten long parameters.

    Pytest puts the id into an environment variable, and Linux starts no process with a variable of 128 KiB.
    """
    if isinstance(val, str | bytes) and len(val) > ID_LENGTH_MAX:
        return f"{val[:ID_LENGTH_MAX]!r} and {len(val) - ID_LENGTH_MAX} more"
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that disturb servers in one worker; pytest-xdist reads the groups after this.

    KONVERSE_TEST_EXAMPLES: number of examples of each property, except those that need a Spark for each example.
    """
    for item in items:
        if _DISTURBING & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(DISTURBED))
    examples = os.environ.get("KONVERSE_TEST_EXAMPLES")
    if not examples:
        return
    kept: list[pytest.Item] = []
    for item in items:
        function: Any = getattr(item, "obj", None)
        if is_hypothesis_test(function) and "spark" not in getattr(item, "fixturenames", ()):
            before = function._hypothesis_internal_use_settings
            function._hypothesis_internal_use_settings = settings(before, max_examples=int(examples), deadline=None)
            item.add_marker(pytest.mark.timeout(PROOF_S))
            kept.append(item)
    items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Prepare the machine before the first test that needs servers, outside its time limit.

    Python's collector no longer visits the collected tests; that took a tenth of the CPU time.
    """
    prepare_collector()
    if any(_NEEDING_SERVERS & set(getattr(item, "fixturenames", ())) for item in session.items):
        prepare()


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Kafka and Redis, shared by all tests and all workers of pytest-xdist. Tests must not disturb them."""
    with ExitStack() as exits:
        try:
            provided = exits.enter_context(provide(_folder_of_all_workers(tmp_path_factory)))
        except StackError as error:
            missing(error)
        yield provided


@pytest.fixture(scope="session")
def local_servers() -> None:
    """Require a machine on which the local stack can run, for tests of the stack itself."""
    needs_local_servers()


@pytest.fixture
def new_stack() -> Iterator[NewStack]:
    """Start local stacks for one test, which may disturb them."""
    with ExitStack() as exits:

        def start(settings: StackSettings) -> LocalStack:
            try:
                return exits.enter_context(LocalStack.start(settings))
            except StackError as error:
                missing(error)

        yield start


@pytest.fixture(scope="session")
def disturbed() -> Iterator[Rig]:
    """Servers that tests disturb one after another, and three proxies in front of the broker.

    Kafka checks rights; a topic without ACLs is open to everyone.
    """
    with ExitStack() as exits:
        try:
            made = exits.enter_context(rig(["owner", "next owner", "client"], broker_settings=_AUTHORIZER))
        except StackError as error:
            missing(error)
        yield made


@pytest.fixture
def own_stack(disturbed: Rig) -> Iterator[LocalStack]:
    """A broker and a Redis (with its append-only file) that this test may kill or stop. Afterwards they run again.

    Their topics and groups stay, so each test needs a database and topics of its own names.
    """
    yield disturbed.stack
    revive(disturbed.stack)


@pytest.fixture
def proxied(disturbed: Rig) -> Rig:
    """The servers of `own_stack` through proxies, which hold, drop or repeat requests."""
    return disturbed


@pytest.fixture
def database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A unique database name, in an instance of that name for this process and those that it starts.

    In an instance for all tests each `connect` would read what all tests before have created. Tests with a Spark
    session share the default instance, because Spark's processes have the environment that it was started with.
    The topics are deleted afterwards, because a small broker holds about a thousand.
    """
    servers: Servers | None = request.getfixturevalue("servers") if "servers" in request.fixturenames else None
    name = f"t{uuid.uuid4().hex[:12]}"
    if "spark" not in request.path.parts and "spark" not in request.fixturenames:
        monkeypatch.setenv("KONVERSE_INSTANCE", name)
    yield name
    if servers is None:
        return
    admin = AdminClient({"bootstrap.servers": servers.bootstrap})
    with suppress(KafkaException):
        names = [topic for topic in admin.list_topics(timeout=10).topics if f".{escape(name)}." in f".{topic}"]
        for deleted in (admin.delete_topics(names) if names else {}).values():
            with suppress(KafkaException):
                deleted.result(10)


@pytest.fixture
def instance(database: str) -> str:
    """The instance of the test's own, with its own transmission queue."""
    return database


def _folder_of_all_workers(factory: pytest.TempPathFactory) -> Path | None:
    return factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else None
