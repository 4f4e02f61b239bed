"""The stream of a micro-batch: known, none, or refused where it cannot be known."""

from __future__ import annotations

from typing import Final, cast

import pyspark
import pytest
from pyspark import TaskContext

from konverse.schemas.errors import InvalidSettings
from konverse.spark.write.micro_batch import JOB_TAGS, STREAMS_SESSION, stream_of
from tests.spark.executions import Context

STREAM: Final = "c1f09de7-5e50-4cb1-9bcf-1c1fd5b46b0a"
OF_STREAM: Final = {STREAMS_SESSION: "false"}
OF_CONNECT: Final = {JOB_TAGS: "SparkConnect_OperationTag_User__Session_1_Operation_2,spark-session-3"}
OF_CLASSIC: Final = {JOB_TAGS: "spark-session-3-execution-root-id-0,spark-session-3"}


def stream(query: str | None, properties: dict[str, str]) -> str | None:
    return stream_of(cast("TaskContext", Context(0, query, others=properties)), "mine")


@pytest.mark.parametrize("properties", [{}, OF_STREAM, OF_CONNECT, OF_STREAM | OF_CONNECT])
def test_the_stream_that_spark_names_is_taken(properties: dict[str, str]) -> None:
    assert stream(STREAM, properties) == STREAM


@pytest.mark.parametrize("properties", [{}, OF_CLASSIC, OF_CONNECT])
def test_a_task_of_a_session_that_is_not_a_streams_has_no_stream(properties: dict[str, str]) -> None:
    assert stream(None, properties) is None


@pytest.mark.parametrize("properties", [OF_STREAM, OF_STREAM | OF_CLASSIC, OF_STREAM | OF_CONNECT])
def test_a_name_is_refused_with_the_remedy_in_a_streams_session_when_spark_does_not_name_the_stream(
    properties: dict[str, str],
) -> None:
    with pytest.raises(InvalidSettings, match=r"the name 'mine', .* Give 'query' = 'id:' and a UUID of your own"):
        stream(None, properties)


@pytest.mark.parametrize("version", ["4.1.1", "4.2.0"])
def test_before_spark_4_3_a_name_is_refused_in_all_writes_of_connect_as_streams_use_the_users_session_there(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(InvalidSettings, match="the name 'mine'"):
        stream(None, OF_CONNECT)
    assert stream(None, OF_CLASSIC) is None
    assert stream(STREAM, OF_CONNECT) == STREAM
