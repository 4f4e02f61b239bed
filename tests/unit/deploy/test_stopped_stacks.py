"""The end of a stack, without servers."""

from __future__ import annotations

from pathlib import Path

from konverse.deploy import LocalStack
from konverse.deploy.host.folders import StackHome
from konverse.deploy.host.progress import Silence
from konverse.deploy.servers.launcher import Programs
from konverse.deploy.servers.state import ServerState, StackState


def stack_in(folder: Path) -> LocalStack:
    """A stack whose Redis has ended."""
    home = StackHome(folder)
    home.create()
    home.data("redis").mkdir()
    state = StackState("mine", "an-id", (ServerState("redis", "redis", 6379),))
    state.save(home.state)
    return LocalStack(home, state, Programs(Silence()))


def test_data_that_a_stack_has_kept_outlive_the_end_of_its_block(tmp_path: Path) -> None:
    with stack_in(tmp_path / "mine") as stack:
        stack.stop(keep_data=True)
        assert not (tmp_path / "mine" / "stack.json").exists()
    assert (tmp_path / "mine" / "data" / "redis").is_dir()
    assert (tmp_path / "mine" / "kept.json").exists()


def test_the_second_end_of_a_stack_leaves_the_next_one_in_its_folder_alone(tmp_path: Path) -> None:
    first = stack_in(tmp_path / "mine")
    first.stop()
    assert not (tmp_path / "mine").exists()
    second = stack_in(tmp_path / "mine")
    first.stop()
    assert second.directory.is_dir()
    second.stop()
    assert not second.directory.exists()
