"""docs/docker.md and the stand-ins agree with deploy/compose.yaml."""

from __future__ import annotations

import re

from konverse.deploy.java.coordinates import KAFKA_VERSION
from tests.compose.engine import undo
from tests.compose.files import PAGE, variables
from tests.compose.images import RECIPES
from tests.compose.stack import PORTS


def test_the_page_lists_every_variable_of_the_compose_file_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == variables()


def test_each_port_and_each_image_that_the_check_sets_is_a_variable_of_the_compose_file() -> None:
    assert {*PORTS, *RECIPES} <= variables().keys()


def test_the_compose_file_and_the_local_stack_run_the_same_kafka() -> None:
    assert variables()["KAFKA_IMAGE"].endswith(f":{KAFKA_VERSION}")


def test_rules_of_docker_are_taken_back_and_those_of_others_stay() -> None:
    rules = [
        ":FORWARD DROP [0:0]",
        ":DOCKER - [0:0]",
        ":DOCKER-USER - [0:0]",
        "-A FORWARD -j DOCKER-USER",
        "-A FORWARD -i wg0 -j ACCEPT",
        "-A FORWARD -i docker0 ! -o docker0 -j ACCEPT",
        "-A FORWARD -o br-5c79e675cb8d -j DOCKER",
        "-A DOCKER-USER -j RETURN",
    ]
    iptables = ["iptables", "-t", "filter"]
    assert undo("filter", rules) == [
        [*iptables, "-D", "FORWARD", "-j", "DOCKER-USER"],
        [*iptables, "-D", "FORWARD", "-i", "docker0", "!", "-o", "docker0", "-j", "ACCEPT"],
        [*iptables, "-F", "DOCKER"],
        [*iptables, "-F", "DOCKER-USER"],
        [*iptables, "-X", "DOCKER"],
        [*iptables, "-X", "DOCKER-USER"],
    ]
