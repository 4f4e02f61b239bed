"""The local stack, the compose file and the operating page name the same times for Kafka's groups."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from konverse.bridge.reader.session_timeout import LONG_SESSION_S
from konverse.deploy.servers.kafka import common_settings

ROOT = Path(__file__).parents[3]
SESSION, HEARTBEAT = "group.consumer.session.timeout.ms", "group.consumer.heartbeat.interval.ms"
LEAST_SESSION, LEAST_HEARTBEAT = "group.consumer.min.session.timeout.ms", "group.consumer.min.heartbeat.interval.ms"


def compose_settings() -> dict[str, str]:
    """Kafka's settings in the compose file, by their names in Kafka."""
    found = re.findall(
        r'^ +KAFKA_(GROUP_\w+): "(\d+)"$', (ROOT / "deploy" / "compose.yaml").read_text("utf-8"), re.MULTILINE
    )
    return {name.lower().replace("_", "."): value for name, value in found}


@pytest.mark.parametrize("brokers", [1, 3])
def test_the_stack_the_compose_file_and_the_page_agree(brokers: int) -> None:
    page = " ".join((ROOT / "docs" / "operating.md").read_text("utf-8").split())
    said = re.search(
        rf"`{re.escape(SESSION)}`, which is 45 s by default\. `konverse stack` and the compose file set it to (\d+), "
        rf"and `{re.escape(HEARTBEAT)}` to (\d+) "
        rf"\(with `{re.escape(LEAST_SESSION)}` and `{re.escape(LEAST_HEARTBEAT)}` below\)",
        page,
    )
    assert said is not None
    for settings in (common_settings(brokers), compose_settings()):
        assert (settings[SESSION], settings[HEARTBEAT]) == said.groups()
        assert int(settings[LEAST_SESSION]) < int(settings[SESSION])
        assert int(settings[LEAST_HEARTBEAT]) < int(settings[HEARTBEAT])
    assert int(said[1]) / 1000 < 3, "another worker continues within 3 s"
    assert f"With a value above {LONG_SESSION_S:g} s `konverse run` logs one line" in page
