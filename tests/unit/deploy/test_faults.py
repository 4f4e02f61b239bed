from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from konverse.deploy.host.faults import filesystem_faults, last_lines, reports_full_disk, require_room
from konverse.deploy.host.folders import make_folder
from konverse.deploy.servers.state import StackState
from konverse.schemas.errors import StackError
from konverse.schemas.stack_errors import DiskFull


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own without a free byte."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=False)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(OSError, match="No space left"):
            (folder / "filler").write_bytes(bytes(128 * 1024))
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_the_error_for_a_full_file_system_contains_the_path_and_the_free_bytes(full: Path) -> None:
    state = StackState("default", "id", ())
    with pytest.raises(DiskFull, match=rf"No room left for {full}/stack\.json: its file system has 0 bytes free"):
        state.save(full / "stack.json")
    assert [entry.name for entry in full.iterdir()] == ["filler"]


def test_insufficient_disk_space_is_reported_with_the_required_space(full: Path) -> None:
    with pytest.raises(DiskFull, match=r"new/folder: 64 MiB are needed and its file system has 0 bytes"):
        require_room(full / "new" / "folder", 64 * 1024 * 1024)


def test_enough_room_is_no_error(tmp_path: Path) -> None:
    require_room(tmp_path / "new", 1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_room_is_a_full_disk(tmp_path: Path, number: int) -> None:
    with pytest.raises(DiskFull, match=str(tmp_path)), filesystem_faults(tmp_path):
        raise OSError(number, "no room")


def test_another_fault_names_the_file_and_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StackError, match=r"file/folder: Not a directory\.") as caught:
        make_folder(tmp_path / "file" / "folder")
    assert not isinstance(caught.value, DiskFull)


def test_programs_tell_of_a_full_disk_in_their_own_words() -> None:
    assert reports_full_disk("java.io.IOException: No space left on device")
    assert reports_full_disk("mv: Disk quota exceeded")
    assert not reports_full_disk("Connection refused")


def test_the_last_lines_of_a_log_are_those_of_the_last_run(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_lines(log) == "  (no log)"
    log.write_text("old\n")
    assert last_lines(log, since_byte=4) == "  (empty)"
    log.write_text("old\n1\n2\n3\n")
    assert last_lines(log, 2, since_byte=4) == "  2\n  3"
