"""Services are named as they are given, and a stream's id does not depend on where the driver is started."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from konverse.schemas.errors import InvalidSettings
from konverse.spark.write.settings import parse_writer

GIVEN: Final = {"bootstrap": "one:9092", "from_service": "//shop"}


def place(location: str) -> str:
    """The location in the id."""
    return parse_writer({**GIVEN, "checkpointLocation": location}, streaming=True).checkpoint


@pytest.mark.parametrize(
    "location",
    ["dbfs:/jobs/orders", "hdfs:/jobs/orders", "hdfs://names:8020/jobs/orders", "s3a://jobs/orders", "abfss:/jobs"],
)
def test_a_checkpoint_with_a_scheme_is_left_as_it_is_spelled(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (Path("/"), tmp_path):  # a driver started elsewhere
        monkeypatch.chdir(folder)
        assert place(location) == place(f"{location}/") == location


def test_a_checkpoint_on_this_machine_has_one_spelling() -> None:
    spellings = ("/jobs/orders", "/jobs/orders/", "file:/jobs/orders", "file:///jobs/orders/")
    assert {place(location) for location in spellings} == {"/jobs/orders"}


@pytest.mark.parametrize("location", ["orders", "./orders", "jobs/dbfs:/orders", "file:orders", ""])
def test_a_checkpoint_that_depends_on_where_the_driver_is_started_is_refused(location: str) -> None:
    with pytest.raises(InvalidSettings, match=r"'checkpointLocation' is .*; give an absolute path, with a scheme"):
        place(location)


@pytest.mark.parametrize("name", ["//sales/Orders", "//sales/Orders,Returns", ",", " //sales/Orders "])
def test_the_service_of_all_rows_is_one_name_as_it_is_given(name: str) -> None:
    settings = parse_writer({**GIVEN, "to_service": name})
    assert settings.to_services == (name,)
    assert settings.for_all_rows == {"to_service": name}


def test_services_that_rows_may_name_have_commas_between_them() -> None:
    settings = parse_writer({**GIVEN, "to_services": "//a, //b,,//a", "to_service": "//b"})
    assert settings.to_services == ("//a", "//b")
    assert parse_writer(GIVEN).to_services is None


def test_an_empty_service_of_all_rows_is_named_as_it_is_written() -> None:
    with pytest.raises(InvalidSettings, match="'to_service' is empty; give it a name, or leave it out"):
        parse_writer({**GIVEN, "to_service": ""})


@pytest.mark.parametrize("given", [{}, {"from_service": ""}])
def test_the_error_for_a_write_to_a_table_without_options_explains_the_cause(given: dict[str, str]) -> None:
    words = (
        r"'from_service' is missing; .*its queue\. A table over konverse has no options, as Spark keeps none of .* "
        r"saveAsTable or CREATE TABLE: use df\.write\.format\('konverse'\)\.save\(\), or CREATE TEMPORARY VIEW …"
    )
    with pytest.raises(InvalidSettings, match=words):
        parse_writer(given)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"query": "q", "batch": "9" * 5_000}, r"'batch' is '9+\.\.\.9+'; give a number, 0 to 4611686018427387903,"),
        ({"query": "q", "batch": str(1 << 62)}, "'batch' is '4611686018427387904'; give a number"),
        ({"deliveryTimeout": "9" * 5_000}, "'deliveryTimeout' is .*; give seconds"),
        ({"checkpointLocation": "c" * 5_000}, "'checkpointLocation' is .*; give an absolute path"),
        ({"startingOffsets": "[" * 5_000}, r"'startingOffsets' \(here .*\) belongs to a read"),
        ({"o" * 5_000: "1"}, "is unknown to a writer"),
        ({"kafka.": "1"}, "'kafka.' names no setting; write kafka.<setting>"),
    ],
)
def test_a_wrong_option_of_a_writer_is_named_with_the_remedy(changed: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidSettings, match=words) as refused:
        parse_writer({**GIVEN, **changed})
    assert len(str(refused.value)) < 1_000
