from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from konverse.deploy.host.folders import StackHome, cache_folder, stack_folder
from konverse.schemas.errors import InvalidSettings


def test_the_folders_of_the_user_are_those_of_the_xdg_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/users/ann")
    assert cache_folder({"XDG_CACHE_HOME": "/var/cache/ann"}) == Path("/var/cache/ann/konverse")
    assert cache_folder({}) == Path("/users/ann/.cache/konverse")
    assert cache_folder({"XDG_CACHE_HOME": "not/absolute"}) == Path("/users/ann/.cache/konverse")
    assert stack_folder("demo", {"XDG_STATE_HOME": "/st"}) == Path("/st/konverse/stack/demo")
    assert stack_folder("demo", {}) == Path("/users/ann/.local/state/konverse/stack/demo")


def test_a_removed_stack_leaves_no_file_and_no_folder(tmp_path: Path) -> None:
    home = StackHome(tmp_path / "a" / "stack")
    home.create()
    home.data("kafka").mkdir()
    home.log("kafka").touch()
    home.state.touch()
    home.remove()
    assert not home.root.exists()
    home.remove()  # twice is fine


def test_kept_data_stay_and_may_be_used_or_removed_later(tmp_path: Path) -> None:
    home = StackHome(tmp_path / "stack")
    home.create()
    home.data("kafka").mkdir()
    home.state.touch()
    home.remove(keep_data=True)
    assert sorted(entry.name for entry in home.root.iterdir()) == [".konverse-stack", "data"]
    home.refuse_if_foreign()
    home.remove()
    assert not home.root.exists()


def test_removing_a_stack_folder_keeps_files_of_others(tmp_path: Path) -> None:
    home = StackHome(tmp_path / "stack")
    home.create()
    (home.root / "notes.txt").touch()
    home.remove()
    assert [entry.name for entry in home.root.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("name", ["data", "logs", "notes.txt"])
def test_a_folder_with_other_things_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(InvalidSettings, match="is not empty and not the folder of a stack"):
        StackHome(tmp_path).refuse_if_foreign()


def test_an_empty_folder_a_new_one_and_one_with_only_a_lock_are_accepted(tmp_path: Path) -> None:
    StackHome(tmp_path).refuse_if_foreign()
    StackHome(tmp_path / "new").refuse_if_foreign()
    StackHome(tmp_path).lock.touch()
    StackHome(tmp_path).refuse_if_foreign()
    StackHome(tmp_path).remove_if_empty()
    assert not tmp_path.exists()


def test_a_folder_is_never_foreign_while_another_command_makes_or_removes_the_stack(tmp_path: Path) -> None:
    home = StackHome(tmp_path / "stack")
    looked = 0

    def look() -> None:
        nonlocal looked
        looked += 1
        home.refuse_if_foreign()

    with pytest.MonkeyPatch.context() as patch:
        for name in ("mkdir", "touch", "unlink", "rmdir"):
            patch.setattr(Path, name, _looking_first(getattr(Path, name), look))
        home.create()
        home.state.touch()
        home.remove()
    look()
    assert looked > 10


def _looking_first(real: Callable[..., object], look: Callable[[], None]) -> Callable[..., object]:
    def call(*arguments: object, **options: object) -> object:
        look()
        return real(*arguments, **options)

    return call
