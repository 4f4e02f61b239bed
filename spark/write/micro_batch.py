"""The stream whose micro-batch a `df.write` in `foreachBatch` belongs to, as far as a task can know it.

Spark gives tasks local properties. The id of the stream is among them when the function writes in its own thread or in
an InheritableThread. Other threads and Spark Connect do not pass it on.
"""

from __future__ import annotations

from typing import Final

import pyspark
from pyspark import TaskContext

from konverse.schemas.errors import InvalidSettings
from konverse.spark.connection.requirements import version_of
from konverse.spark.connection.values import quoted

from .settings import ID

QUERY_ID: Final = "sql.streaming.queryId"
"""Local property with Spark's id of the stream."""

STREAMS_SESSION: Final = "spark.sql.requireAllClusterKeysForDistribution"
"""Local property of every task whose frame belongs to the session of a stream.

Spark copies the user's session for each stream and sets this internal setting in the copy. The frames that
`foreachBatch` gets belong to the copy, whichever thread writes them.
"""

JOB_TAGS: Final = "spark.job.tags"
_CONNECT: Final = "SparkConnect_"
"""In the tags of all work for a client of Spark Connect."""

_CONNECT_COPIES_SINCE: Final = (4, 3)
"""Before this version `foreachBatch` gets frames of the user's own session under Spark Connect (SPARK-44462)."""


def stream_of(context: TaskContext, query: str) -> str | None:
    """Spark's id of the stream whose micro-batch a task writes; None outside of streams.

    `query` is the name that the write gives its query. Raises InvalidSettings where the write belongs to a stream, or
    may belong to one, and Spark does not say to which.
    """
    stream = context.getLocalProperty(QUERY_ID)
    if stream is None and _may_be_of_stream(context):
        raise InvalidSettings(
            f"option 'query' is the name {quoted(query)}, and Spark does not say whose micro-batch is written here: "
            "it does so neither in threads that 'foreachBatch' starts nor under Spark Connect. After a new checkpoint "
            f"rows would be taken for earlier ones of that name. Give 'query' = '{ID}' and a UUID of your own, another "
            "one for each checkpoint and each frame of a micro-batch"
        )
    return stream


def _may_be_of_stream(context: TaskContext) -> bool:
    if context.getLocalProperty(STREAMS_SESSION) is not None:
        return True
    is_connect = _CONNECT in (context.getLocalProperty(JOB_TAGS) or "")
    return is_connect and version_of(pyspark.__version__) < _CONNECT_COPIES_SINCE
