"""Ids of conversations are random and well-formed, and a process never uses those of another."""

from __future__ import annotations

import os
import uuid

from konverse.bridge.runtime.ids import random_id


def test_ids_are_uuids_of_version_4_and_all_differ() -> None:
    ids = [random_id() for _ in range(1_000)]
    assert len(set(ids)) == len(ids)
    for each in ids:
        read = uuid.UUID(bytes=each)
        assert read.version == 4
        assert read.variant == uuid.RFC_4122


def test_a_forked_child_has_ids_of_its_own() -> None:
    random_id()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, random_id())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 16)
    assert theirs not in {random_id() for _ in range(1_000)}
