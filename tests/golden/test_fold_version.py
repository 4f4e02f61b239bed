"""A journal of other records, or with other operations, has other fold rules: an old process must not fold it."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Final

from fastavro.schema import fingerprint, to_parsing_canonical_form

from konverse.schemas.wire.journal import FOLD_VERSION

JOURNALS: Final = {1: "d2e6580890d23ae6ee179db3911d9e22b816c8f2aad8a011695c8177c2ea45cb"}
"""Version of the fold's rules -> SHA-256 of the journal's schema, without its comments."""


def test_a_journal_with_another_schema_has_another_version_of_the_rules() -> None:
    schema = json.loads(files("konverse.schemas").joinpath("journal.avsc").read_text("utf-8"))
    assert fingerprint(to_parsing_canonical_form(schema), "SHA-256") == JOURNALS[FOLD_VERSION], (
        "journal.avsc has changed. If a release has the old one, raise FOLD_VERSION and add a line; else correct it"
    )


def test_versions_of_the_rules_count_up() -> None:
    assert [*JOURNALS] == [*range(1, FOLD_VERSION + 1)]
