"""The local session has suitable settings, and finds the format in every kind of installation."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import TimestampType

from konverse.spark.daemon import forget_archives
from konverse.spark.session import DISCOVERED, make_discoverable


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(300)
def test_a_local_session_leaves_filters_to_spark_and_has_no_page(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "false"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.master == "local[2,4]"
    assert spark.sparkContext.pythonExec == sys.executable


def test_the_folder_of_the_module_is_put_on_the_path_where_spark_cannot_see_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = find_spec(DISCOVERED)
    assert found is not None
    assert found.origin is not None
    folder = str(Path(found.origin).parent)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != folder])
    monkeypatch.setenv("PYTHONPATH", "already")
    make_discoverable()
    make_discoverable()
    assert os.environ["PYTHONPATH"] == os.pathsep.join([folder, "already"])


def test_a_folder_that_spark_sees_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / f"{DISCOVERED}.py").write_text("", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("PYTHONPATH", "already")
    make_discoverable()
    assert os.environ["PYTHONPATH"] == "already"


def test_workers_do_not_read_the_directories_of_archives_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive = tmp_path / "some.zip"
    with ZipFile(archive, "w") as made:
        made.writestr("konverse_archived.py", "")
    monkeypatch.syspath_prepend(str(archive))
    assert find_spec("konverse_archived") is not None
    monkeypatch.setattr(sys, "path_importer_cache", sys.path_importer_cache.copy())
    forget_archives()
    assert [path for path in sys.path_importer_cache if path.endswith((".jar", ".zip"))] == []
    assert find_spec("konverse_archived") is not None, "what is in one is found all the same"


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(300)
def test_a_session_whose_timestamps_have_no_zone_reads_timestamps_with_one(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        for mode in ("messages", "journal", "conversations"):
            options = {"bootstrap": "127.0.0.1:1", "database": "d", "queue": "q", "mode": mode}
            schema = spark.read.format("konverse").options(**options).load().schema
            found = [field.dataType for field in schema.fields if "time" in field.name]
            assert found
            assert set(found) == {TimestampType()}, mode
    finally:
        spark.conf.unset("spark.sql.timestampType")
