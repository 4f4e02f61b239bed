"""Tables of the command line: no word is cut, however narrow the terminal, whatever the script."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from konverse.bridge.cli.tables import GAP, Page, column_widths, print_table

ID = "0f8fad5b-d9cb-469f-a165-70867728950e"
COLUMNS = ("conversation", "service", "unread", "in")
ROWS = [
    (ID, "//sales/OrderService", 1_234, "Orders/0"),
    (ID, "//sales/" + "x" * 60, 5, "Orders/11"),
    (ID, "//倉庫/非常に長いサービスの名前", 6, "注文の待ち行列/0"),
    (ID, "a service with a name of many words", 7, "Orders[red]/0"),
]
WORDS = {word for row in ROWS for cell in row for word in (f"{cell:,}" if isinstance(cell, int) else cell).split()}


@pytest.mark.parametrize("columns", ["20", "60", "80", "100", "200", None])
def test_every_word_stands_whole_in_a_line(
    columns: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if columns is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", columns)
    print_table("A queue with a very long name, longer than a narrow terminal is wide", COLUMNS, ROWS)
    shown = capsys.readouterr().out
    assert set(shown.split()) >= WORDS
    assert set(COLUMNS) <= {word.rstrip(":") for word in shown.split()}
    if columns is not None and "conversation:" not in shown:
        assert max(cell_len(line.rstrip()) for line in shown.splitlines()[1:]) <= int(columns)


@pytest.mark.parametrize(("limit", "paragraphs"), [("60", True), ("160", False)])
def test_a_table_that_has_no_room_becomes_paragraphs(
    limit: str, paragraphs: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", limit)
    print_table("Conversations", COLUMNS, ROWS[:2])
    assert (
        f"conversation: {ID}\nservice: //sales/OrderService\nunread: 1,234\nin: Orders/0" in capsys.readouterr().out
    ) is (paragraphs)


def test_a_line_breaks_between_words_where_that_makes_room() -> None:
    lines = [("name", "text"), ("x", "one two three")]
    assert column_widths(lines, None) == [4, 13]
    assert column_widths(lines, 4 + GAP + 9) == [4, 9]
    assert column_widths(lines, 4 + GAP + 5) == [4, 5]
    assert column_widths(lines, 4 + GAP + 4) is None


def test_a_table_without_rows_has_its_names(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("Nothing", COLUMNS, [])
    assert capsys.readouterr().out.split()[: 1 + len(COLUMNS)] == ["Nothing", *COLUMNS]


@pytest.mark.parametrize("columns", ["12", "200"], ids=["paragraphs", "table"])
def test_a_name_that_reads_like_an_emoji_or_markup_is_printed_as_it_is(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    names = ["//a:key:b", ":red_circle:", "[bold]x[/]", "a\\[red]"]
    print_table("Services", ("name",), [(name,) for name in names])
    Page().print("finding: //a:key:b", markup=False)
    shown = capsys.readouterr().out
    assert {*names, "//a:key:b"} <= {*shown.split()}
    assert "🔑" not in shown
