"""A Hypothesis strategy for changes of a routing table."""

from __future__ import annotations

from hypothesis import strategies as st

from konverse.schemas.catalog.routing_tables import TableChange
from konverse.schemas.catalog.table_entries import Target


def table_changes(texts: st.SearchStrategy[str]) -> st.SearchStrategy[TableChange]:
    """Changes that use some of these texts as names and keys."""
    targets = st.builds(Target, texts, st.none() | texts)
    return st.builds(
        TableChange,
        name=texts,
        put=st.dictionaries(texts, targets, max_size=4),
        remove=st.lists(texts, max_size=4).map(tuple),
        default=st.none() | targets,
        without_default=st.booleans(),
        routers=st.none() | st.lists(texts, max_size=2).map(tuple),
        creates=st.booleans(),
        parts=st.binary(max_size=16),
        part=st.integers(0, 99),
        last=st.booleans(),
    )
