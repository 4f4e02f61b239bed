"""The Error document: well-formed for every description (behaviours 112, 113)."""

from __future__ import annotations

from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest

from konverse.schemas.errors import BadInput, InvalidError, MalformedRecord
from konverse.schemas.limits import ERROR_CODE_MAX, ERROR_DESCRIPTION_CHARACTERS_MAX
from konverse.schemas.system_messages import ERROR_NAMESPACE, check_error, error_body, lost_body, read_error, shortened


def read(body: bytes) -> tuple[int, str]:
    """Code and description of an Error document."""
    root = ET.fromstring(body)
    assert root.tag == f"{{{ERROR_NAMESPACE}}}Error"
    code, description = list(root)
    assert [child.tag for child in root] == [f"{{{ERROR_NAMESPACE}}}Code", f"{{{ERROR_NAMESPACE}}}Description"]
    return int(code.text or ""), description.text or ""


@pytest.mark.parametrize(
    "description",
    [
        "no such article",
        "<Code>1</Code>",
        "a & b",
        "]]>",
        "\"quoted\" 'twice'",
        "Größe \u5317\u4eac \U0001f600",
        "line\nline\ttab",
        "of Windows\r\nand of none\r",
        "x" * 3000,
    ],
)
def test_a_description_is_read_back(description: str) -> None:
    assert read(error_body(4711, description)) == (4711, description)
    assert read_error(error_body(-8462, description)) == (-8462, description)


PRINTED = b"""<?xml version="1.0"?>
<Error xmlns="https://schemas.microsoft.com/SQL/ServiceBroker">
  <Code>12</Code>
  <Description>
    Unknown cost center "127-1000". Please check the cost center list
    and resubmit the report.
  </Description>
</Error>"""
"""The sample of the original's page about system messages."""


@pytest.mark.parametrize("scheme", [b"http", b"https"])
@pytest.mark.parametrize("end", [b"", b"/Error"])
def test_the_sample_that_the_original_prints_is_read_behaviour_130(scheme: bytes, end: bytes) -> None:
    document = PRINTED.replace(b"https", scheme).replace(b'ServiceBroker"', b"ServiceBroker" + end + b'"')
    code, description = read_error(document)
    assert (code, " ".join(description.split())) == (
        12,
        'Unknown cost center "127-1000". Please check the cost center list and resubmit the report.',
    )
    assert read_error(error_body(code, description)) == (code, description)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_the_sample_is_read_as_a_database_stores_it(encoding: str) -> None:
    assert read_error(PRINTED.decode().encode(encoding))[0] == 12


def test_the_sample_may_have_the_element_that_the_text_around_it_names() -> None:
    code, message = read_error(PRINTED.replace(b"Description", b"Message"))
    assert (code, message.split()[:3]) == (12, ["Unknown", "cost", "center"])
    both = PRINTED.replace(b"</Error>", b"<Message>not this</Message></Error>")
    assert read_error(both) == read_error(PRINTED)


def test_an_error_in_another_namespace_is_none() -> None:
    with pytest.raises(MalformedRecord):
        read_error(PRINTED.replace(b"microsoft.com", b"microsoft.example"))


def test_reading_an_error_without_a_body_is_refused() -> None:
    with pytest.raises(BadInput, match=r"message\.body"):
        read_error(cast("bytes", None))


@pytest.mark.parametrize("character", ["\x00", "\x08", "\x0b", "\x1f", "\ufffe", "\uffff"])
def test_characters_invalid_in_xml_are_replaced(character: str) -> None:
    assert read(error_body(1, f"a{character}b")) == (1, "a\ufffdb")


def test_a_lone_surrogate_is_replaced() -> None:
    assert read(error_body(1, "a\ud800b"))[1] == "a\ufffdb"


@pytest.mark.parametrize("character", ["\x00", "\x08", "\x0b", "\x1f", "\ud800", "\ufffe", "\uffff"])
def test_an_error_description_invalid_in_xml_is_refused_unless_the_invalid_character_is_replaced(
    character: str,
) -> None:
    with pytest.raises(InvalidError, match=rf"U\+{ord(character):04X} as character 2, which XML cannot") as refused:
        check_error(1, f"a{character}b")
    assert refused.value.number == 8419
    assert check_error(1, shortened(f"a{character}b")) == (1, "a\ufffdb")
    assert check_error(1, "\t\r\n\x7f\ud7ff\ue000\ufffd\U0010ffff")[0] == 1


def test_a_document_is_utf_8_and_says_its_namespace() -> None:
    assert error_body(-8462, "gone").startswith(b'<?xml version="1.0"?><Error xmlns="http://schemas.microsoft.com/')


@pytest.mark.parametrize(
    ("code", "description"), [(0, ""), (1, "x"), (ERROR_CODE_MAX, "x" * ERROR_DESCRIPTION_CHARACTERS_MAX)]
)
def test_an_end_may_carry_this(code: int, description: str) -> None:
    assert check_error(code, description) == (code, description)


@pytest.mark.parametrize(
    ("code", "description", "number"),
    [
        (None, None, 8424),
        (None, "", 8424),
        (0, None, 8424),
        (1, None, 8422),
        (1, "", 8422),
        (-1, "", 8422),
        (1, 7, 8422),
        (None, "x", 8419),
        (0, "x", 8419),
        (-1, "x", 8419),
        (ERROR_CODE_MAX + 1, "x", 8419),
        ("7", "x", 8419),
        (True, "x", 8419),
        (1, "x" * (ERROR_DESCRIPTION_CHARACTERS_MAX + 1), 8419),
    ],
)
def test_an_end_may_not_carry_this_behaviour_112(code: Any, description: Any, number: int) -> None:
    with pytest.raises(InvalidError, match="END WITH ERROR") as refused:
        check_error(code, description)
    assert refused.value.number == number


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no such article",
        b"<Error><Code>1</Code><Description>of no namespace</Description></Error>",
        error_body(1, "cut")[:-1],
        error_body(1, "x").replace(b"<Code>1", b"<Code>one"),
        error_body(1, "x").replace(b"<Description>x</Description>", b""),
        b'<?xml version="1.0" encoding="no-such-encoding"?>' + error_body(1, "x").partition(b"?>")[2],
        error_body(1, "x").replace(b"<Error", b'<!DOCTYPE e [<!ENTITY a "aaaa">]><Error').replace(b">x<", b">&a;&a;<"),
    ],
)
def test_a_body_that_is_not_an_error_document_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedRecord):
        read_error(body)


def test_the_error_of_a_loss_names_the_lost_records_under_a_service_broker_code() -> None:
    code, description = read_error(lost_body(5, 9))
    assert code == -9719
    assert "its records 5 to 8 were deleted before they were received" in description
    assert read(lost_body(5, 9)) == (code, description)
    assert len(description) <= ERROR_DESCRIPTION_CHARACTERS_MAX
