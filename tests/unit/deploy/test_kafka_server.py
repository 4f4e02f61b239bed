"""The settings file of a Kafka node."""

from __future__ import annotations

from pathlib import Path

from konverse.deploy.host.folders import StackHome
from konverse.deploy.java.java import Java
from konverse.deploy.servers.kafka import KafkaProgram
from konverse.deploy.servers.state import ServerState


def test_a_folder_of_any_name_is_written_in_ascii_as_java_reads_settings_in_latin_1(tmp_path: Path) -> None:
    home = StackHome(tmp_path / "jürgen 😀\\x")
    home.create()
    node = ServerState("kafka", "kafka", port=1, node_id=1, controller_port=2)
    program = KafkaProgram(Java(Path("java"), "17", 17, "", "PATH"), tmp_path, tmp_path)
    program.launch(node, [node], home, (), {})
    text = home.config("kafka").read_bytes().decode("ascii")
    (folder,) = (line for line in text.splitlines() if line.startswith("log.dirs="))
    assert folder.endswith(r"/j\u00fcrgen \ud83d\ude00\\x/data/kafka")
