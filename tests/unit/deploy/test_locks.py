from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from konverse.deploy.host.locks import locked
from konverse.schemas.errors import StackError


def test_a_second_holder_waits_and_gives_up_at_its_deadline(tmp_path: Path) -> None:
    waited: list[bool] = []
    with (
        locked(tmp_path / "lock", deadline_s=1),
        pytest.raises(StackError, match="has been locked by another process"),
        locked(tmp_path / "lock", deadline_s=0.1, on_wait=lambda: waited.append(True)),
    ):
        pass
    assert waited == [True]


def test_a_waiter_gets_the_lock_although_the_holder_deletes_the_lock_file(tmp_path: Path) -> None:
    waiting, got_it = threading.Event(), threading.Event()

    def wait_for_it() -> None:
        with locked(tmp_path / "lock", deadline_s=30, on_wait=waiting.set):
            assert (tmp_path / "lock").exists()
            got_it.set()

    other = threading.Thread(target=wait_for_it)
    with locked(tmp_path / "lock", deadline_s=1):
        other.start()
        assert waiting.wait(30)
        (tmp_path / "lock").unlink()
    assert got_it.wait(30)
    other.join()


def test_the_folder_of_the_lock_is_made(tmp_path: Path) -> None:
    with locked(tmp_path / "a" / "b" / "lock", deadline_s=1):
        assert (tmp_path / "a" / "b" / "lock").exists()


def test_a_lock_that_cannot_be_made_is_an_error_of_the_stack(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StackError, match="file"), locked(tmp_path / "file" / "lock", deadline_s=1):
        pass


def test_the_folder_may_go_whenever_the_lock_is_free(tmp_path: Path) -> None:
    lock = tmp_path / "stack" / "lock"

    def take_and_remove() -> None:
        for _ in range(100):
            with locked(lock, deadline_s=60):
                lock.unlink()
                with suppress(OSError):
                    lock.parent.rmdir()

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(take_and_remove) for _ in range(3)]:
            done.result()
